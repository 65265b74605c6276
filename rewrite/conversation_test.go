// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// modes are the values of PendingUpload, by the names that the configuration has for them.
func modes() map[string]PendingUpload {
	return map[string]PendingUpload{"auto": PendingUploadAuto, "always": PendingUploadAlways, "off": PendingUploadOff}
}

// brokers are what the tables here call a broker, and the rows of its ApiVersions that
// count. The version is that of ListOffsets.
func brokers() []struct {
	name   string
	rows   []kmsg.ApiVersionsResponseApiKey
	expect Support
} {
	row := func(key, lowest, highest int16) kmsg.ApiVersionsResponseApiKey {
		return kmsg.ApiVersionsResponseApiKey{ApiKey: key, MinVersion: lowest, MaxVersion: highest}
	}
	epochs := row(codec.KeyOffsetForLeaderEpoch, 0, 4)
	return []struct {
		name   string
		rows   []kmsg.ApiVersionsResponseApiKey
		expect Support
	}{
		{"unknown", nil, SupportUnknown},
		{"8", []kmsg.ApiVersionsResponseApiKey{row(2, 0, 8), epochs}, SupportNone},
		{"9", []kmsg.ApiVersionsResponseApiKey{row(2, 0, 9), epochs}, SupportSynthesised},
		{"10", []kmsg.ApiVersionsResponseApiKey{epochs, row(2, 1, 10)}, SupportSynthesised},
		{"11", []kmsg.ApiVersionsResponseApiKey{row(2, 1, 11), epochs}, SupportNative},
		{"12", []kmsg.ApiVersionsResponseApiKey{row(2, 1, 12), epochs}, SupportNative},
		{"10-without-epochs", []kmsg.ApiVersionsResponseApiKey{row(2, 1, 10)}, SupportNone},
		{"10-with-epochs-3", []kmsg.ApiVersionsResponseApiKey{row(2, 1, 10), row(codec.KeyOffsetForLeaderEpoch, 0, 3)}, SupportNone},
		{"10-with-epochs-5", []kmsg.ApiVersionsResponseApiKey{row(2, 1, 10), row(codec.KeyOffsetForLeaderEpoch, 5, 6)}, SupportNone},
		{"without-listoffsets", []kmsg.ApiVersionsResponseApiKey{epochs}, SupportNone},
	}
}

// talkTo returns a conversation with one of brokers.
func talkTo(t testing.TB, broker string, rules *Rules) Conversation {
	t.Helper()
	v := NewConversation(rules)
	for _, b := range brokers() {
		if b.name != broker {
			continue
		}
		if b.rows != nil {
			answer := kmsg.NewPtrApiVersionsResponse()
			answer.ApiKeys = b.rows
			if err := v.Learn(0, frameOf(answer, codec.Classic)); err != nil {
				t.Fatal(err)
			}
		}
		if v.Support() != b.expect {
			t.Fatalf("broker %s: support is %s, want %s", broker, v.Support(), b.expect)
		}
		return v
	}
	t.Fatalf("no broker %q", broker)
	return v
}

// rulesOf reads the arguments pending=<mode> and addresses=<kept|rewritten> of a script.
func rulesOf(t *testing.T, d *datadriven.TestData) *Rules {
	t.Helper()
	var pending, addresses string
	d.ScanArgs(t, "pending", &pending)
	d.ScanArgs(t, "addresses", &addresses)
	mode, ok := modes()[pending]
	if !ok {
		d.Fatalf(t, "pending=%s", pending)
	}
	rules := &Rules{PendingUpload: mode}
	switch addresses {
	case "rewritten":
		rules.Addresses = fleet{host: "proxy"}
	case "kept":
	default:
		d.Fatalf(t, "addresses=%s", addresses)
	}
	return rules
}

// TestTreatments prints what becomes of every key from 0 to 100 at every version from 0 to
// 20, in each mode. Keys of which all versions pass untouched are left out.
func TestTreatments(t *testing.T) {
	datadriven.RunTest(t, "testdata/treatments", func(t *testing.T, d *datadriven.TestData) string {
		var broker string
		d.ScanArgs(t, "broker", &broker)
		v := talkTo(t, broker, rulesOf(t, d))
		var out strings.Builder
		for key := int16(0); key <= 100; key++ {
			ranges, touched := treatments(t, &v, key)
			if touched {
				fmt.Fprintf(&out, "%d %s: %s\n", key, KeyName(key), strings.Join(ranges, ", "))
			}
		}
		if out.Len() == 0 {
			return "all pass\n"
		}
		return out.String()
	})
}

// treatments says what becomes of the versions of one key, in ranges.
func treatments(t *testing.T, v *Conversation, key int16) (ranges []string, touched bool) {
	t.Helper()
	first, last := int16(0), ""
	for version := int16(0); version <= 21; version++ {
		now := ""
		if version <= 20 {
			now = treatment(t, v, key, version)
			touched = touched || now != "pass"
		}
		if now != last && version > 0 {
			ranges = append(ranges, fmt.Sprintf("%d-%d %s", first, version-1, last))
			first = version
		}
		last = now
	}
	return ranges, touched
}

func treatment(t *testing.T, v *Conversation, key, version int16) string {
	t.Helper()
	request, response, err := v.Request(key, version)
	switch {
	case errors.Is(err, ErrUnrewritable):
		if want := fmt.Sprintf("%s v%d: its answer carries broker addresses that cannot be rewritten", KeyName(key), version); err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
		return "refused"
	case err != nil:
		t.Fatalf("%s v%d: %v", KeyName(key), version, err)
	case request == Hold && response == Opaque:
		return "request held"
	case request == Opaque && response == Hold:
		return "response held"
	case request == Opaque && response == Front:
		return "response front"
	case request == Opaque && response == Walk:
		return "response walked"
	case request == Opaque && response == Opaque:
		return "pass"
	}
	t.Fatalf("%s v%d: request %d, response %d", KeyName(key), version, request, response)
	return ""
}

// Keys and versions that no one knows pass, in every mode, but for versions above those
// known of responses that carry addresses.
func TestUnknownKeysPass(t *testing.T) {
	for _, rules := range []*Rules{{}, {PendingUpload: PendingUploadOff}, {Addresses: fleet{host: "proxy"}}} {
		v := NewConversation(rules)
		for _, key := range []int16{math.MinInt16, -1, 83, 101, 10_000, math.MaxInt16} {
			for _, version := range []int16{math.MinInt16, -1, 0, 1, math.MaxInt16} {
				if got := treatment(t, &v, key, version); got != "pass" {
					t.Errorf("%+v: key %d v%d: %s", rules, key, version, got)
				}
			}
		}
	}
	rewriting := NewConversation(&Rules{Addresses: fleet{host: "proxy"}})
	for _, b := range AddressBearers() {
		if got := treatment(t, &rewriting, b.Key, math.MaxInt16); got != "refused" {
			t.Errorf("%s v32767: %s", KeyName(b.Key), got)
		}
		if got := treatment(t, &rewriting, b.Key, -1); got != "pass" {
			t.Errorf("%s v-1: %s", KeyName(b.Key), got)
		}
	}
}

// TestListOffsets prints what becomes of ListOffsets requests, and checks the bytes that
// go to the broker against kmsg.
func TestListOffsets(t *testing.T) {
	datadriven.RunTest(t, "testdata/listoffsets", func(t *testing.T, d *datadriven.TestData) string {
		var pending string
		d.ScanArgs(t, "pending", &pending)
		var out strings.Builder
		for _, b := range brokers() {
			fmt.Fprintf(&out, "broker %s\n", b.name)
			for version := int16(9); version <= 12; version++ {
				v := talkTo(t, b.name, &Rules{PendingUpload: modes()[pending]})
				plain := listOffsets(t, &v, version, codec.EarliestTimestamp, codec.EarliestLocalTimestamp)
				asked := listOffsets(t, &v, version, codec.EarliestTimestamp, codec.EarliestPendingUploadTimestamp)
				if plain == asked {
					fmt.Fprintf(&out, "  v%d: %s\n", version, plain)
				} else {
					fmt.Fprintf(&out, "  v%d: %s; with -6: %s\n", version, plain, asked)
				}
			}
		}
		return out.String()
	})
}

// Timestamps with a meaning of their own.
const ()

// listOffsetsFrame is a client's request for two partitions.
func listOffsetsFrame(version int16, timestamps ...int64) []byte {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = version
	req.ReplicaID, req.IsolationLevel, req.TimeoutMillis = -1, 1, 30_000
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "orders"
	for i, at := range timestamps {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = int32(i), at
		topic.Partitions = append(topic.Partitions, p)
	}
	topic.UnknownTags.Set(40, []byte("kept"))
	req.Topics = append(req.Topics, topic)
	req.UnknownTags.Set(41, []byte("also kept"))
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).AppendRequest(nil, req, 77)
}

// listOffsets says what becomes of one request.
func listOffsets(t *testing.T, v *Conversation, version int16, timestamps ...int64) string {
	t.Helper()
	if treatment(t, v, codec.KeyListOffsets, version) == "pass" {
		return "pass"
	}
	frame := listOffsetsFrame(version, timestamps...)
	came := bytes.Clone(frame)
	step, out, machine, err := v.ListOffsets(frame)
	if err != nil {
		t.Fatalf("v%d: %v", version, err)
	}
	switch step {
	case AskVersions:
		if !bytes.Equal(out, came) || machine != nil {
			t.Fatalf("v%d: the request changed before the broker's versions are known: %x", version, out)
		}
		return "ask for versions"
	case Answer:
		if out != nil || !bytes.Equal(frame, came) {
			t.Fatalf("v%d: the request changed to %x, %x is to be sent", version, frame, out)
		}
		ask, _ := machine.Ready()
		return fmt.Sprintf("answer from look-ups at v%d", ask.Version)
	case Forward:
		sent := codec.RequestVersion(out)
		if want := listOffsetsFrame(sent, timestamps...); !bytes.Equal(out, want) || machine != nil || &out[0] != &frame[0] {
			t.Fatalf("v%d: got %x\nwant %x", version, out, want)
		}
		if sent == version {
			return "looked into, forward"
		}
		return fmt.Sprintf("forward at v%d", sent)
	}
	t.Fatalf("v%d: step %d", version, step)
	return ""
}

// A ListOffsets request that is held and none is an error, and is not changed.
func TestListOffsetsFaults(t *testing.T) {
	whole := listOffsetsFrame(11, codec.EarliestPendingUploadTimestamp)
	for n := codec.RequestFixedLen; n < len(whole); n++ {
		cut := bytes.Clone(whole[:n])
		codec.PutSize(cut)
		came := bytes.Clone(cut)
		v := talkTo(t, "10", &Rules{})
		if step, _, _, err := v.ListOffsets(cut); err == nil || !bytes.Equal(cut, came) {
			t.Fatalf("the first %d bytes of %x: step %d, %v, now %x", n, whole, step, err, cut)
		}
	}
}

// What a session learns late counts from then on: a request that waited is looked at anew.
func TestListOffsetsAfterVersions(t *testing.T) {
	v := NewConversation(&Rules{})
	frame := listOffsetsFrame(11, codec.EarliestTimestamp)
	if step, out, _, err := v.ListOffsets(frame); step != AskVersions || &out[0] != &frame[0] || err != nil {
		t.Fatalf("step %d, %v", step, err)
	}
	answer := kmsg.NewPtrApiVersionsResponse()
	answer.ErrorCode = 35
	if err := v.Learn(0, frameOf(answer, codec.Classic)); err != nil || v.Support() != SupportNone {
		t.Fatalf("after an error answer: support %s, %v", v.Support(), err)
	}
	if step, out, _, err := v.ListOffsets(frame); step != Forward || !bytes.Equal(out, listOffsetsFrame(11, codec.EarliestTimestamp)) || err != nil {
		t.Fatalf("step %d, %x, %v", step, out, err)
	}
	if err := v.Learn(0, []byte{0, 0, 0, 4, 0, 0, 0, 1}); err == nil || v.Support() != SupportNone {
		t.Fatalf("a cut answer: support %s, %v", v.Support(), err)
	}
	if step, _, _, err := v.ListOffsets(frame); step != Forward || err != nil {
		t.Fatalf("step %d, %v", step, err)
	}
}

func TestSupportNames(t *testing.T) {
	want := map[Support]string{SupportUnknown: "unknown", SupportSynthesised: "synthesised", SupportNative: "native", SupportNone: "none", 77: "unknown"}
	for s, name := range want {
		if s.String() != name {
			t.Errorf("%d is %q, want %q", s, s.String(), name)
		}
	}
}

func TestKeyName(t *testing.T) {
	for key, want := range map[int16]string{-1: "unknown", 0: "Produce", 18: "ApiVersions", 82: "UpdateRaftVoter", 10_000: "unknown"} {
		if got := KeyName(key); got != want {
			t.Errorf("key %d is %q, want %q", key, got, want)
		}
	}
}
