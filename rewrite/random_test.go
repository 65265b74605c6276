// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// filler fills the structures of kmsg with random values: every field, every nested
// structure, tags that nobody knows among them.
type filler struct{ rnd *rand.Rand }

// newFiller returns a filler that fills alike for the same seed.
func newFiller(seed uint64) filler { return filler{rand.New(rand.NewPCG(seed, 7))} }

// hosts are what brokers advertise: a name, literals without brackets, one so long that
// its length takes two bytes, and none, which stands for no node at all.
func hosts() []string {
	return []string{"b", "broker-1.kafka.internal", "10.0.0.7", "::1", "2001:db8::17", strings.Repeat("long.", 60), "", ""}
}

// response returns a random response as it is after it went over the wire: fields that
// its version does not have are at their defaults.
func (f filler) response(t testing.TB, key, version int16) kmsg.Response {
	t.Helper()
	r := kmsg.ResponseForKey(key)
	f.fill(reflect.ValueOf(r).Elem())
	r.SetVersion(version)
	return decoded(t, key, version, r.AppendTo(nil))
}

// decoded reads a response body.
func decoded(t testing.TB, key, version int16, body []byte) kmsg.Response {
	t.Helper()
	r := kmsg.ResponseForKey(key)
	r.SetVersion(version)
	if err := r.ReadFrom(body); err != nil {
		t.Fatalf("%s v%d: kmsg: %v\nbody: %x", KeyName(key), version, err, body)
	}
	return r
}

// frame encodes a response, with a tag in its header now and then.
func (f filler) frame(r kmsg.Response) []byte {
	enc := codec.Classic
	if r.IsFlexible() {
		enc = codec.Flexible
	}
	if enc == codec.Classic || f.rnd.IntN(3) > 0 {
		return frameOf(r, enc)
	}
	b := []byte{0, 0, 0, 0, 0, 0, 0, 7, 1, 21, 2, 'h', 'd'}
	b = r.AppendTo(b)
	codec.PutSize(b)
	return b
}

func (f filler) fill(v reflect.Value) {
	if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
		for range f.rnd.IntN(6) / 4 {
			// 20: above all that are known, below those that padding uses.
			tags.Set(20+f.rnd.Uint32N(70), f.bytes(f.rnd.IntN(9)))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if f.rnd.IntN(6) == 0 && v.CanAddr() && v.Type().NumField() < 4 {
			return // as the defaults have it: a tagged field is then left out
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "Host" {
				v.Field(i).SetString(hosts()[f.rnd.IntN(len(hosts()))])
			} else {
				f.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		f.fillSlice(v)
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Pointer:
		if f.rnd.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.String:
		v.SetString(string(f.bytes(f.rnd.IntN(12))))
	case reflect.Bool:
		v.SetBool(f.rnd.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.int64() >> (64 - v.Type().Bits()))
	case reflect.Uint16, reflect.Uint8:
		v.SetUint(f.rnd.Uint64() >> (64 - v.Type().Bits()))
	default:
		panic(fmt.Sprintf("kmsg has a field of type %s: say what random values it takes", v.Type()))
	}
}

// int64 is small now and then, so that node ids are those of clusters.
func (f filler) int64() int64 {
	if f.rnd.IntN(2) == 0 {
		return int64(f.rnd.Uint64())
	}
	return int64(f.rnd.IntN(5)) << 32
}

func (f filler) fillSlice(v reflect.Value) {
	n := f.rnd.IntN(4)
	elem := v.Type().Elem()
	if elem.Kind() == reflect.Uint8 {
		switch f.rnd.IntN(12) {
		case 0:
			n = 20_000 // a length of three bytes
		case 1, 2, 3:
			n = f.rnd.IntN(300)
		}
		if n > 0 {
			v.SetBytes(f.bytes(n))
		}
		return
	}
	if f.rnd.IntN(60) == 0 && elem.Kind() == reflect.Struct {
		n = 130 // a length of two bytes
	}
	if n == 0 && f.rnd.IntN(2) == 0 {
		return // null, where that may be
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		if d, ok := v.Index(i).Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		f.fill(v.Index(i))
	}
}

func (f filler) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.rnd.Uint32())
	}
	return b
}

// fleet advertises every node at one host. Every third node has no port of its own. It
// writes down what it is told.
type fleet struct {
	host   string
	growth int
	// observed collects what ObserveNodes got, unless it is nil.
	observed *[]string
}

func (f fleet) Advertised(nodeID int32) (host string, port int32, mapped bool) {
	return f.host, 1 + int32(uint16(nodeID))/2, nodeID%3 != 0
}

func (f fleet) Growth() int { return f.growth }

func (f fleet) ObserveNodes(named []Node) {
	if f.observed == nil {
		return
	}
	for _, n := range named {
		*f.observed = append(*f.observed, fmt.Sprintf("%d at %q %d", n.NodeID, n.Host, n.Port))
	}
}

// rewritten is what became of a response's addresses.
type rewritten struct {
	unmapped []int32
	// observed are the addresses as they came.
	observed []string
}

// advertise replaces the addresses in a response of kmsg, which is the slow and simple
// way to do what this package does: every structure with a host and a port, but for empty
// hosts, belongs to the node id beside it or around it.
func (f fleet) advertise(r kmsg.Response) rewritten {
	var done rewritten
	f.advertiseIn(reflect.ValueOf(r).Elem(), -1, &done)
	return done
}

func (f fleet) advertiseIn(v reflect.Value, nodeID int32, done *rewritten) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			f.advertiseIn(v.Index(i), nodeID, done)
		}
	case reflect.Struct:
		if ofControllers(v) {
			return
		}
		if id := v.FieldByName("NodeID"); id.IsValid() {
			nodeID = int32(id.Int())
		}
		host, port := v.FieldByName("Host"), v.FieldByName("Port")
		if host.IsValid() && port.IsValid() && host.String() != "" {
			newHost, newPort, mapped := f.Advertised(nodeID)
			if !mapped {
				done.unmapped = append(done.unmapped, nodeID)
			}
			done.observed = append(done.observed, fmt.Sprintf("%d at %q %d", nodeID, host.String(), port.Int()))
			port.SetInt(int64(newPort))
			host.SetString(newHost)
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.advertiseIn(v.Field(i), nodeID, done)
			}
		}
	}
}

// ofControllers says that a structure of kmsg names controllers, whose addresses stay.
func ofControllers(v reflect.Value) bool {
	kind := v.FieldByName("EndpointType")
	return kind.IsValid() && kind.Int() == endpointsOfControllers
}

// unhex decodes hexadecimal digits with spaces in between.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
