// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// hideIn does to a response of kmsg what UnmappedHide is to do, the slow and simple way,
// and the replacing of all other addresses.
func (f fleet) hideIn(r kmsg.Response) (unmapped []int32) {
	hidden := func(nodeID int32, host string) bool {
		_, _, mapped := f.Advertised(nodeID)
		if host == "" || mapped {
			return false
		}
		unmapped = append(unmapped, nodeID)
		return true
	}
	controller := func(id *int32) {
		if _, _, mapped := f.Advertised(*id); !mapped && *id >= 0 {
			*id = -1
		}
	}
	text := hiddenCoordinator
	switch r := r.(type) {
	case *kmsg.ProduceResponse:
		r.Brokers = slices.DeleteFunc(r.Brokers, func(b kmsg.ProduceResponseBroker) bool { return hidden(b.NodeID, b.Host) })
	case *kmsg.FetchResponse:
		r.Brokers = slices.DeleteFunc(r.Brokers, func(b kmsg.FetchResponseBroker) bool { return hidden(b.NodeID, b.Host) })
	case *kmsg.ShareFetchResponse:
		r.NodeEndpoints = slices.DeleteFunc(r.NodeEndpoints, func(b kmsg.ShareFetchResponseNodeEndpoint) bool { return hidden(b.NodeID, b.Host) })
	case *kmsg.ShareAcknowledgeResponse:
		r.NodeEndpoints = slices.DeleteFunc(r.NodeEndpoints, func(b kmsg.ShareAcknowledgeResponseNodeEndpoint) bool { return hidden(b.NodeID, b.Host) })
	case *kmsg.MetadataResponse:
		r.Brokers = slices.DeleteFunc(r.Brokers, func(b kmsg.MetadataResponseBroker) bool { return hidden(b.NodeID, b.Host) })
		controller(&r.ControllerID)
	case *kmsg.DescribeClusterResponse:
		if r.EndpointType == endpointsOfControllers {
			return nil
		}
		r.Brokers = slices.DeleteFunc(r.Brokers, func(b kmsg.DescribeClusterResponseBroker) bool { return hidden(b.NodeID, b.Host) })
		controller(&r.ControllerID)
	case *kmsg.FindCoordinatorResponse:
		if r.Version < findCoordinatorBatch {
			if hidden(r.NodeID, r.Host) {
				r.NodeID, r.Host, r.Port, r.ErrorCode, r.ErrorMessage = -1, "", -1, 15, &text
			}
			break
		}
		for i := range r.Coordinators {
			if c := &r.Coordinators[i]; hidden(c.NodeID, c.Host) {
				c.NodeID, c.Host, c.Port, c.ErrorCode, c.ErrorMessage = -1, "", -1, 15, &text
			}
		}
	default:
		panic(fmt.Sprintf("say what is hidden in a %T", r))
	}
	f.advertise(r)
	return unmapped
}

// kept is a fleet that leaves the addresses of unmapped nodes alone: the oracle of
// UnmappedPassthrough.
func (f fleet) keepIn(r kmsg.Response) (unmapped []int32) {
	var walk func(v reflect.Value, nodeID int32)
	walk = func(v reflect.Value, nodeID int32) {
		switch v.Kind() {
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), nodeID)
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
				switch {
				case !mapped:
					unmapped = append(unmapped, nodeID)
				default:
					host.SetString(newHost)
					port.SetInt(int64(newPort))
				}
			}
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(v.Field(i), nodeID)
				}
			}
		}
	}
	walk(reflect.ValueOf(r).Elem(), -1)
	return unmapped
}

// Random responses of every version come out as kmsg encodes them with hidden nodes taken
// out, or left as they are, and every other address replaced. Hidden and passed through
// nodes are reported and told to Nodes as those that are replaced.
func TestUnmappedNodes(t *testing.T) {
	for mode, oracle := range map[Unmapped]func(fleet, kmsg.Response) []int32{
		UnmappedHide: fleet.hideIn, UnmappedPassthrough: fleet.keepIn,
	} {
		eachRewritten(t, func(t *testing.T, key, version int16) {
			f := newFiller(uint64(key)<<16 | uint64(version) + 7)
			found := 0
			for i := range 50 {
				in := f.response(t, key, version)
				frame := f.frame(in)
				var observed []string
				nodes := fleet{host: advertisedHosts()[i%len(advertisedHosts())], observed: &observed}
				v := NewConversation(&Rules{Addresses: nodes, Unmapped: mode, Nodes: nodes})
				got, unmapped, err := v.Response(key, version, bytes.Clone(frame))
				if err != nil {
					t.Fatalf("%v\nframe: %x", err, frame)
				}
				seen := nodes.advertise(decoded(t, key, version, in.AppendTo(nil)))
				wantUnmapped := oracle(nodes, in)
				found += len(wantUnmapped)
				header := len(frame) - len(decoded(t, key, version, body(frame, key, version)).AppendTo(nil))
				// Decoded and encoded anew, since kmsg leaves out a tag with an empty array.
				out := decoded(t, key, version, got[header:]).AppendTo(nil)
				if want := in.AppendTo(nil); !bytes.Equal(out, want) || int(codec.Size(got)) != len(got)-codec.SizeLen {
					t.Fatalf("mode %d, %+v\nframe: %x\ngot:   %x\nwant:  %x", mode, in, frame, got, want)
				}
				if !slices.Equal(unmapped, wantUnmapped) || !slices.Equal(observed, seen.observed) {
					t.Fatalf("mode %d, unmapped %v, observed %q\nwant %v and %q", mode, unmapped, observed, wantUnmapped, seen.observed)
				}
			}
			if found == 0 {
				t.Fatal("no response names a node without an address: the test shows nothing")
			}
		})
	}
}

// body is a response frame without its header.
func body(frame []byte, key, version int16) []byte {
	off, err := codec.ResponseBody(frame, codec.EncodingOf(version, bearerOf(key).firstFlexible))
	if err != nil {
		panic(err)
	}
	return frame[off:]
}

// The same holds for responses that stream: the padding is all that is new.
func TestUnmappedNodesStreamed(t *testing.T) {
	for mode, oracle := range map[Unmapped]func(fleet, kmsg.Response) []int32{
		UnmappedHide: fleet.hideIn, UnmappedPassthrough: fleet.keepIn,
	} {
		for _, key := range []int16{codec.KeyFetch, codec.KeyShareFetch} {
			f := newFiller(uint64(key))
			rnd := rand.New(rand.NewPCG(3, uint64(mode)))
			for range 100 {
				version := bearerOf(key).known
				in := f.response(t, key, version)
				frame := frameOf(in, codec.Flexible)
				nodes := fleet{host: "proxy.example.com", growth: 4096}
				v := NewConversation(&Rules{Addresses: nodes, Unmapped: mode})
				s := v.Stream(key, version)
				got := stream(t, s, frame, 1+rnd.IntN(200))
				if want := len(frame) + s.Growth(); len(got) != want || int(codec.Size(got)) != want-codec.SizeLen {
					t.Fatalf("length %d, announced %d, want %d", len(got), codec.Size(got), want-codec.SizeLen)
				}
				oracle(nodes, in)
				out := decoded(t, key, version, body(got, key, version))
				if !tagLess(reflect.ValueOf(out).Elem().FieldByName("UnknownTags").Addr().Interface().(*kmsg.Tags)) {
					t.Fatalf("no padding in %x", got)
				}
				if got, want := out.AppendTo(nil), in.AppendTo(nil); !bytes.Equal(got, want) {
					t.Fatalf("mode %d: got %x\nwant %x", mode, got, want)
				}
			}
		}
	}
}

// A coordinator that is hidden, in the bytes of each form.
func TestHiddenCoordinator(t *testing.T) {
	nodes := NewNodeTable(map[int32]Address{1: {"proxy", 9201}})
	message := fmt.Sprintf("%x", hiddenCoordinator)
	for _, c := range []struct {
		name, body, want string
		version          int16
	}{
		{"v0", "0000 00000002 0001 62 00002384", "000f ffffffff 0000 ffffffff", 0},
		{"v2", "00000005 0000 0004 4e4f4e45 00000002 0001 62 00002384", "00000005 000f 004b" + message + " ffffffff 0000 ffffffff", 2},
		{"v3", "00000005 0000 05 4e4f4e45 00000002 02 62 00002384 01 07 00", "00000005 000f 4c" + message + " ffffffff 01 ffffffff 01 07 00", 3},
		{
			"v4", "00000005 03 02 67 00000002 02 62 00002384 0000 00 01 07 01 aa 02 68 00000001 02 62 00002384 0000 00 00 00",
			"00000005 03 02 67 ffffffff 01 ffffffff 000f 4c" + message + " 01 07 01 aa 02 68 00000001 06 70726f7879 000023f1 0000 00 00 00", 4,
		},
	} {
		enc := codec.EncodingOf(c.version, findCoordinatorFlexible)
		frame := func(body string) []byte {
			b := append(codec.AppendNoTags([]byte{0, 0, 0, 0, 0, 0, 0, 7}, enc), unhex(t, body)...)
			codec.PutSize(b)
			return b
		}
		v := NewConversation(&Rules{Addresses: nodes, Unmapped: UnmappedHide})
		got, unmapped, err := v.Response(codec.KeyFindCoordinator, c.version, frame(c.body))
		if want := frame(c.want); err != nil || !bytes.Equal(got, want) || !slices.Equal(unmapped, []int32{2}) {
			t.Errorf("%s: %v, unmapped %v\ngot  %x\nwant %x", c.name, err, unmapped, got, want)
		}
	}
}

const findCoordinatorFlexible = 3 // FindCoordinatorResponse.json
