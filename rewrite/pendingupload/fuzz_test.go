// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/tierlog"
)

// fuzzSteps is the number of answers of one fuzzed exchange: the look-ups and two rounds.
const fuzzSteps = 8

// FuzzMachine plays any bytes as the client's request and the broker's answers: no panic,
// no memory beyond a multiple of what came in, and a response, if there is one, in which
// every partition that asked for -6 stands, and in which all that the machine may not
// change is as the broker sent it.
func FuzzMachine(f *testing.F) {
	for _, seed := range fuzzSeeds(f) {
		f.Add(seed.request, seed.answers[0], seed.answers[1], seed.answers[2], seed.answers[3], seed.answers[4], seed.answers[5], seed.answers[6], seed.answers[7], uint8(0))
	}
	f.Fuzz(func(t *testing.T, request, a0, a1, a2, a3, a4, a5, a6, a7 []byte, choice uint8) {
		answers := [][]byte{a0, a1, a2, a3, a4, a5, a6, a7}
		total := len(request)
		for _, a := range answers {
			total += len(a)
			if len(a) >= codec.SizeLen && choice&1 == 0 {
				// Or the fuzzer spends its time on size fields.
				codec.PutSize(a)
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m := fuzzExchange(t, request, answers, choice)
		runtime.ReadMemStats(&after)
		// A partition takes 17 bytes of the request, and up to maxCandidates here.
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20+uint64(total)*400 {
			t.Fatalf("%d bytes allocated for %d that came in\nrequest: %x\nanswers: %x", grown, total, request, answers)
		}
		if m != nil && m.State() == Done {
			again, err := newMachine(request, 10, fuzzPlan(choice))
			if err != nil {
				t.Fatal(err)
			}
			// The client's own request is the last look-up but one of those that go out first.
			checkResponse(t, request, answers[len(ready(again))-2], m)
		}
	})
}

// fuzzPlan is what the machine begins with.
func fuzzPlan(choice uint8) Plan { return TwoFirst - Plan(choice>>4&1) }

// fuzzExchange runs one exchange as far as it goes.
func fuzzExchange(t *testing.T, request []byte, answers [][]byte, choice uint8) *Machine {
	m, err := newMachine(request, 9+int16(choice>>1&1), fuzzPlan(choice))
	if err != nil {
		return nil
	}
	for _, a := range answers {
		for _, ask := range ready(m) {
			if int(codec.Size(ask.Frame)) != len(ask.Frame)-codec.SizeLen {
				t.Fatalf("an ask whose size is wrong: %x", ask.Frame)
			}
		}
		if m.State() != AwaitAnswers {
			break
		}
		if err := m.Step(slices.Clone(a)); err != nil {
			return nil
		}
		m.SetRemoteStorage(func(string) codec.RemoteStorage { return codec.RemoteStorage(choice >> 2 & 3) })
	}
	return m
}

// checkResponse compares the response with the answer to -5 through kmsg.
func checkResponse(t *testing.T, request, tier []byte, m *Machine) {
	t.Helper()
	_, body, err := codec.RequestBody(request, codec.Flexible)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 11
	if err := req.ReadFrom(request[body:]); err != nil {
		t.Fatalf("kmsg: %v\nrequest: %x", err, request)
	}
	asked := map[string]bool{}
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			if p.Timestamp == codec.EarliestPendingUploadTimestamp {
				asked[fmt.Sprintf("%q/%d", topic.Topic, p.Partition)] = true
			}
		}
	}
	unpatched := func(frame []byte) (*kmsg.ListOffsetsResponse, map[string]bool) {
		resp := decodeListOffsets(t, frame, 11)
		resp.ThrottleMillis = 0
		seen := map[string]bool{}
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				p := &resp.Topics[i].Partitions[j]
				name := fmt.Sprintf("%q/%d", resp.Topics[i].Topic, p.Partition)
				if asked[name] {
					seen[name] = true
					p.ErrorCode, p.Timestamp, p.Offset, p.LeaderEpoch = 0, 0, 0, 0
				}
			}
		}
		return resp, seen
	}
	got, seen := unpatched(m.Response())
	want, _ := unpatched(tier)
	if len(seen) != len(asked) {
		t.Fatalf("asked %v, answered %v\nrequest: %x\nresponse: %x", asked, seen, request, m.Response())
	}
	if len(got.Topics) < len(want.Topics) {
		t.Fatalf("%d topics, the broker's answer has %d\nresponse: %x\nanswer to -5: %x", len(got.Topics), len(want.Topics), m.Response(), tier)
	}
	got.Topics = got.Topics[:len(want.Topics)]
	if g, w := encodeResponse(got, 0), encodeResponse(want, 0); !slices.Equal(g, w) {
		t.Fatalf("something else changed\nresponse: %x\nanswer to -5: %x", m.Response(), tier)
	}
	r := m.Report()
	if r.Answered+r.Empty+r.Errors != len(asked) {
		t.Fatalf("%d partitions, report %+v", len(asked), r)
	}
}

// fuzzSeed is an exchange that took place.
type fuzzSeed struct {
	request []byte
	answers [fuzzSteps][]byte
}

func fuzzSeeds(f *testing.F) []fuzzSeed {
	b := &broker{t: f, maxVersion: 10, logs: map[string][]*tierlog.Log{}, denied: map[string]bool{"denied": true}}
	askings := []asking{pending("denied", 0), pending("unknown", 0), pending("v", 0), pending("v", 0)}
	for i, v := range tierlog.Vectors() {
		b.logs["v"] = append(b.logs["v"], v.Log())
		askings = append(askings, pending("v", int32(i)))
	}
	b.logs["e"] = []*tierlog.Log{uploadedLog(5), uploadedLog(40)}
	wide := tierlog.New(3)
	wide.SetRemoteStorage(codec.RemoteStorageEnabled)
	wide.Append(10)
	wide.Upload(9)
	wide.NewLeaderEpoch(1000)
	wide.Append(10)
	wide.NewLeaderEpoch(1 << 20)
	b.logs["w"] = []*tierlog.Log{wide}
	seeds := []fuzzSeed{{request: encodeRequest(listOffsetsRequest(0, -1, askings...), []byte("client"), 1)}}
	for _, a := range []asking{pending("e", 0), pending("e", 1), pending("w", 0), pending("v", 2), pending("missing", 0)} {
		seeds = append(seeds, fuzzSeed{request: encodeRequest(listOffsetsRequest(1, -1, a, asking{"v", 0, -1, -1}), nil, 1)})
	}
	for i := range seeds {
		m, err := newMachine(seeds[i].request, 9, TwoFirst)
		if err != nil {
			f.Fatal(err)
		}
		n := 0
		for m.State() == AwaitAnswers {
			for _, a := range ready(m) {
				seeds[i].answers[n] = b.answer(a.Frame)
				if err := m.Step(seeds[i].answers[n]); err != nil {
					f.Fatal(err)
				}
				n++
			}
			m.SetRemoteStorage(b.statuses)
		}
	}
	return seeds
}
