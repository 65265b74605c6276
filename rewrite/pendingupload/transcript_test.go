// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package pendingupload

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
)

// TestTranscripts runs the scripts in testdata/transcripts. A script is one exchange after the
// other; its commands are:
//
//	new [two|older] [version=10] [client=c] [correlation=7] [replica=-1] [isolation=0] [timeout=30000]
//	<topic> <partition> <timestamp> [<current leader epoch>]
//		a client's request of version 11; client=null is the null client id; with older
//		the machine is an Older, for a broker whose ListOffsets ends at version 8
//
//	answer [throttle=0]
//	<topic> <partition> <offset>/<epoch>           or error=<code>
//		the answer to the oldest ask; to an epoch round it is <epoch>/<end offset>
//	<topic> <id>
//		to Metadata: a number that is the topic's id
//
//	answer-hex
//	<hex of a whole frame>
//
//	status <topic>=<enabled|disabled|unknown>...
//
//	uploaded
//	<topic> <partition> unknown|<epoch>:<offset>... [cut]
//		what is uploaded of the partitions that Wanted returned, in their order
//
//	response
//	report
//
// Every command but the last two prints the error, if there is one, the state, and the
// asks that became ready.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		var tr transcript
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return tr.command(t, d)
		})
	})
}

// transcript is a machine under a script.
type transcript struct {
	m Exchange
	// queue are the asks without an answer.
	queue []Ask
}

func (tr *transcript) command(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		var version int16 = 10
		d.MaybeScanArgs(t, "version", &version)
		m, err := transcriptMachine(t, d, version)
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		*tr = transcript{m: m}
		return tr.after(t, nil)
	case "answer":
		return tr.after(t, tr.m.Step(tr.answer(t, d)))
	case "answer-hex":
		frame, err := hex.DecodeString(strings.Join(strings.Fields(d.Input), ""))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		tr.queue = tr.queue[min(1, len(tr.queue)):]
		return tr.after(t, tr.m.Step(frame))
	case "status":
		tr.m.SetRemoteStorage(func(topic string) codec.RemoteStorage { return transcriptStatus(t, d, topic) })
		return tr.after(t, nil)
	case "uploaded":
		return tr.after(t, tr.m.(*Older).Take(transcriptUploaded(t, d, tr.m.(*Older))))
	case "response":
		return printListOffsets(decodeListOffsets(t, tr.m.Response(), 11), codec.ResponseCorrelationID(tr.m.Response()))
	case "report":
		if o, ok := tr.m.(*Older); ok {
			return fmt.Sprintf("%+v, unknown uploads: %d\n", o.Report(), o.UnknownUploads())
		}
		return fmt.Sprintf("%+v\n", tr.m.Report())
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return ""
	}
}

// transcriptMachine returns the machine of a new exchange.
func transcriptMachine(t *testing.T, d *datadriven.TestData, version int16) (Exchange, error) {
	frame := transcriptRequest(t, d)
	switch {
	case d.HasArg("older"):
		r, err := ParseRequest(frame)
		if err != nil {
			return nil, err
		}
		return NewOlder(r)
	case d.HasArg("two"):
		return newMachine(frame, version, TwoFirst)
	}
	return newMachine(frame, version, AllFour)
}

// after prints what a command led to.
func (tr *transcript) after(t *testing.T, err error) string {
	var b strings.Builder
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	fmt.Fprintf(&b, "%v", tr.m.State())
	if tr.m.State() == AwaitRemoteStorage {
		fmt.Fprintf(&b, " %q", tr.m.Topics())
	}
	if tr.m.State() == AwaitUploaded {
		wanted, again := tr.m.(*Older).Wanted()
		for _, p := range wanted {
			fmt.Fprintf(&b, " %s-%d of id %d", p.Topic, p.Partition, p.TopicID[15])
		}
		if again {
			b.WriteString(", again")
		}
	}
	b.WriteByte('\n')
	for _, a := range ready(tr.m) {
		tr.queue = append(tr.queue, a)
		b.WriteString(printAsk(t, a))
	}
	return b.String()
}

// answer builds the answer to the oldest ask.
func (tr *transcript) answer(t *testing.T, d *datadriven.TestData) []byte {
	var throttle int32
	d.MaybeScanArgs(t, "throttle", &throttle)
	ask := tr.queue[0]
	tr.queue = tr.queue[1:]
	if ask.Key == metadataKey {
		return transcriptMetadata(t, d)
	}
	list, ends := kmsg.NewPtrListOffsetsResponse(), kmsg.NewPtrOffsetForLeaderEpochResponse()
	list.Version, list.ThrottleMillis = ask.Version, throttle
	ends.Version, ends.ThrottleMillis = ask.Version, throttle
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		partition, code, offset, epoch := int32(number(t, d, f[1])), int16(0), int64(-1), int32(-1)
		if value, isError := strings.CutPrefix(f[2], "error="); isError {
			code = int16(number(t, d, value))
		} else {
			o, e, _ := strings.Cut(f[2], "/")
			if ask.Key == codec.KeyOffsetForLeaderEpoch {
				o, e = e, o
			}
			offset, epoch = number(t, d, o), int32(number(t, d, e))
		}
		if n := len(list.Topics); n == 0 || list.Topics[n-1].Topic != f[0] {
			list.Topics = append(list.Topics, kmsg.ListOffsetsResponseTopic{Topic: f[0]})
			ends.Topics = append(ends.Topics, kmsg.OffsetForLeaderEpochResponseTopic{Topic: f[0]})
		}
		l, e := &list.Topics[len(list.Topics)-1], &ends.Topics[len(ends.Topics)-1]
		l.Partitions = append(l.Partitions, kmsg.ListOffsetsResponseTopicPartition{
			Partition: partition, ErrorCode: code, Timestamp: -1, Offset: offset, LeaderEpoch: epoch,
		})
		e.Partitions = append(e.Partitions, kmsg.OffsetForLeaderEpochResponseTopicPartition{
			Partition: partition, ErrorCode: code, EndOffset: offset, LeaderEpoch: epoch,
		})
	}
	if ask.Key == codec.KeyOffsetForLeaderEpoch {
		return encodeResponse(ends, 1000)
	}
	return encodeResponse(list, 1000)
}

// transcriptRequest builds the client's request.
func transcriptRequest(t *testing.T, d *datadriven.TestData) []byte {
	client, correlationID, isolation, replicaID := "c", int32(7), 0, int32(-1)
	d.MaybeScanArgs(t, "client", &client)
	d.MaybeScanArgs(t, "correlation", &correlationID)
	d.MaybeScanArgs(t, "isolation", &isolation)
	d.MaybeScanArgs(t, "replica", &replicaID)
	var askings []asking
	for _, line := range strings.Split(d.Input, "\n") {
		f := strings.Fields(line)
		a := asking{topic: f[0], partition: int32(number(t, d, f[1])), timestamp: number(t, d, f[2]), currentEpoch: -1}
		if len(f) > 3 {
			a.currentEpoch = int32(number(t, d, f[3]))
		}
		askings = append(askings, a)
	}
	req := listOffsetsRequest(int8(isolation), replicaID, askings...)
	d.MaybeScanArgs(t, "timeout", &req.TimeoutMillis)
	if client == "null" {
		return encodeRequest(req, nil, correlationID)
	}
	return encodeRequest(req, []byte(client), correlationID)
}

// transcriptMetadata builds the answer to Metadata.
func transcriptMetadata(t *testing.T, d *datadriven.TestData) []byte {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = metadataVersion
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		f := strings.Fields(line)
		rt := kmsg.MetadataResponseTopic{Topic: kmsg.StringPtr(f[0])}
		rt.TopicID[15] = byte(number(t, d, f[1]))
		resp.Topics = append(resp.Topics, rt)
	}
	return encodeResponse(resp, 1000)
}

// transcriptUploaded reads what is uploaded of the partitions that a machine wants to know of.
func transcriptUploaded(t *testing.T, d *datadriven.TestData, m *Older) []Uploaded {
	wanted, _ := m.Wanted()
	lines := strings.Split(strings.TrimSpace(d.Input), "\n")
	if len(lines) != len(wanted) {
		d.Fatalf(t, "%d lines for %d partitions", len(lines), len(wanted))
	}
	uploaded := make([]Uploaded, len(wanted))
	for i, line := range lines {
		f := strings.Fields(line)
		if f[0] != wanted[i].Topic || number(t, d, f[1]) != int64(wanted[i].Partition) {
			d.Fatalf(t, "%q, the machine wants %+v", line, wanted[i])
		}
		u := &uploaded[i]
		u.Known = !slices.Contains(f[2:], "unknown")
		for _, word := range f[2:] {
			epoch, offset, ok := strings.Cut(word, ":")
			switch {
			case ok:
				u.Epochs = append(u.Epochs, EpochOffset{Epoch: int32(number(t, d, epoch)), Offset: number(t, d, offset)})
			case word == "cut":
				u.Cut = true
			case word != "unknown":
				d.Fatalf(t, "unexpected %q", word)
			}
		}
	}
	return uploaded
}

func transcriptStatus(t *testing.T, d *datadriven.TestData, topic string) codec.RemoteStorage {
	var status string
	d.ScanArgs(t, topic, &status)
	switch status {
	case "enabled":
		return codec.RemoteStorageEnabled
	case "disabled":
		return codec.RemoteStorageDisabled
	case "unknown":
		return codec.RemoteStorageUnknown
	}
	d.Fatalf(t, "no status %q", status)
	return codec.RemoteStorageUnknown
}

// printAsk prints a request in one line per topic.
func printAsk(t *testing.T, a Ask) string {
	var b strings.Builder
	clientID, _, err := codec.RequestBody(a.Frame, codec.Flexible)
	if err != nil {
		t.Fatalf("ask %x: %v", a.Frame, err)
	}
	client := "null"
	if clientID != nil {
		client = strconv.Quote(string(clientID))
	}
	req := decodeRequest(t, a.Frame)
	if a.Key != req.Key() || a.Version != req.GetVersion() || codec.RequestCorrelationID(a.Frame) != 0 {
		t.Fatalf("ask %d v%d is %x", a.Key, a.Version, a.Frame)
	}
	switch req := req.(type) {
	case *kmsg.MetadataRequest:
		fmt.Fprintf(&b, "> Metadata v%d client=%s:", a.Version, client)
		for _, topic := range req.Topics {
			fmt.Fprintf(&b, " %s", *topic.Topic)
		}
	case *kmsg.ListOffsetsRequest:
		fmt.Fprintf(&b, "> ListOffsets v%d client=%s replica=%d isolation=%d", a.Version, client, req.ReplicaID, req.IsolationLevel)
		if a.Version >= 10 {
			fmt.Fprintf(&b, " timeout=%d", req.TimeoutMillis)
		}
		b.WriteByte(':')
		for _, topic := range req.Topics {
			fmt.Fprintf(&b, " %s", topic.Topic)
			for _, p := range topic.Partitions {
				fmt.Fprintf(&b, " [%d %d epoch %d]", p.Partition, p.Timestamp, p.CurrentLeaderEpoch)
			}
		}
	case *kmsg.OffsetForLeaderEpochRequest:
		fmt.Fprintf(&b, "> OffsetForLeaderEpoch v%d client=%s replica=%d:", a.Version, client, req.ReplicaID)
		for _, topic := range req.Topics {
			fmt.Fprintf(&b, " %s", topic.Topic)
			for _, p := range topic.Partitions {
				fmt.Fprintf(&b, " [%d %d epoch %d]", p.Partition, p.LeaderEpoch, p.CurrentLeaderEpoch)
			}
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// printListOffsets prints a response, one line per partition.
func printListOffsets(resp *kmsg.ListOffsetsResponse, correlationID int32) string {
	var b strings.Builder
	fmt.Fprintf(&b, "correlation=%d throttle=%d\n", correlationID, resp.ThrottleMillis)
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			fmt.Fprintf(&b, "%s %d error=%d timestamp=%d %d/%d\n", topic.Topic, p.Partition, p.ErrorCode, p.Timestamp, p.Offset, p.LeaderEpoch)
		}
	}
	return b.String()
}

func number(t *testing.T, d *datadriven.TestData, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return n
}
