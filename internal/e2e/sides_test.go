// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/recorder"
	"tiergate/loadtest/kafka"
)

// tally counts what a comparison of both sides of tiergate went over.
type tally struct {
	sessions, frames int
	bytes            int64
	raised           int // ApiVersions answers with another ListOffsets max, two bytes
	lowered          int // ListOffsets requests with a lower version
	undelivered      int // answers that came when the client had gone
}

// String says it in words.
func (c tally) String() string {
	return fmt.Sprintf("%d connections, %d frames, %d bytes are the same on both sides; %d ApiVersions answers differ in the two bytes "+
		"of ListOffsets' max, %d ListOffsets requests are lowered, %d answers came when the client had gone",
		c.sessions, c.frames, c.bytes, c.raised, c.lowered, c.undelivered)
}

func (c *tally) add(o tally) {
	c.sessions += o.sessions
	c.frames += o.frames
	c.bytes += o.bytes
	c.raised += o.raised
	c.lowered += o.lowered
	c.undelivered += o.undelivered
}

// sides says what may differ between the client's side and the broker's side: with a
// broker whose ListOffsets ends at listOffsetsMax, and clients that are told 11,
//
//   - the max version of the ListOffsets row of an ApiVersions answer is 11 and not that:
//     two bytes, the length is the same;
//   - a ListOffsets request above that version is at that version: two bytes, and before
//     a broker that ends at 9 also the four bytes of TimeoutMs are gone and the size says so.
//
// A broker that ends at 11 leaves nothing that may differ.
type sides struct{ listOffsetsMax int16 }

// compareAll pairs every session of the client's side with one of the broker's side that
// carries the same frames, and fails for every session that has no partner.
func (x sides) compareAll(t *testing.T, a, b *recorder.Recorder) tally {
	t.Helper()
	brokerSide := b.Sessions()
	var total tally
	for _, client := range a.Sessions() {
		if len(client.Frames(recorder.ToBroker)) == 0 {
			continue
		}
		at, best := -1, error(nil)
		deepest := -1
		for i, broker := range brokerSide {
			counts, err := x.compare(client, broker)
			if err == nil {
				at = i
				total.add(counts)
				break
			}
			if counts.frames > deepest {
				deepest, best = counts.frames, err
			}
		}
		if at < 0 {
			t.Errorf("no connection to the broker carries what a client's connection does; the one that is most alike: %v", best)
			continue
		}
		brokerSide = append(brokerSide[:at:at], brokerSide[at+1:]...)
	}
	for _, broker := range brokerSide {
		if frames := broker.Frames(recorder.ToBroker); len(frames) > 0 {
			t.Errorf("tiergate sent the broker what no client asked for, %d requests, the first one: %x", len(frames), frames[0].Bytes)
		}
	}
	return total
}

// compare compares two sessions frame by frame. The counts are right up to the first
// difference.
func (x sides) compare(client, broker *recorder.Session) (tally, error) {
	counts := tally{sessions: 1}
	a, b := client.Frames(recorder.ToBroker), broker.Frames(recorder.ToBroker)
	for i := range min(len(a), len(b)) {
		if err := x.request(a[i].Bytes, b[i].Bytes, &counts); err != nil {
			return counts, fmt.Errorf("request %d: %w", i, err)
		}
	}
	if len(a) != len(b) || !bytes.Equal(client.Rest(recorder.ToBroker), broker.Rest(recorder.ToBroker)) {
		return counts, fmt.Errorf("the client sent %d requests and the broker got %d", len(a), len(b))
	}
	exchanges, err := broker.Exchanges()
	if err != nil {
		return counts, err
	}
	return counts, x.responses(client, exchanges, &counts)
}

// responses compares what came back. Answers at the end may be missing at the client
// that closed its connection before they came.
func (x sides) responses(client *recorder.Session, exchanges []recorder.Exchange, counts *tally) error {
	a := client.Frames(recorder.ToClient)
	for _, e := range exchanges {
		if e.Response == nil {
			continue // acks=0
		}
		if len(a) == 0 {
			counts.undelivered++
			continue
		}
		if err := x.response(a[0].Bytes, e, counts); err != nil {
			return fmt.Errorf("response to %v: %w", e, err)
		}
		a = a[1:]
	}
	if len(a) > 0 {
		return fmt.Errorf("%d responses more than the broker gave, the first one %x", len(a), a[0].Bytes)
	}
	return nil
}

// request compares a request at both sides.
func (x sides) request(client, broker []byte, counts *tally) error {
	counts.frames++
	counts.bytes += int64(len(client))
	if bytes.Equal(client, broker) {
		return nil
	}
	if len(client) < codec.RequestFixedLen || codec.RequestKey(client) != int16(kmsg.ListOffsets) || codec.RequestVersion(client) <= x.listOffsetsMax {
		return fmt.Errorf("not the same:\nclient's side %x\nbroker's side %x", client, broker)
	}
	want, err := lowered(client, x.listOffsetsMax)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, broker) {
		return fmt.Errorf("ListOffsets v%d lowered:\nclient's side %x\nbroker's side %x\nwant there    %x", codec.RequestVersion(client), client, broker, want)
	}
	counts.lowered++
	return nil
}

// lowered makes the same request at another version, with kmsg.
func lowered(frame []byte, version int16) ([]byte, error) {
	req, err := kafka.DecodeRequest(frame)
	if err != nil {
		return nil, err
	}
	clientID, _, err := codec.RequestBody(frame, codec.Flexible)
	if err != nil {
		return nil, err
	}
	req.SetVersion(version)
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID(string(clientID)))
	return formatter.AppendRequest(nil, req, codec.RequestCorrelationID(frame)), nil
}

// response compares a response at both sides.
func (x sides) response(client []byte, e recorder.Exchange, counts *tally) error {
	counts.frames++
	counts.bytes += int64(len(client))
	if bytes.Equal(client, e.Response) {
		if e.Key() == int16(kmsg.ApiVersions) && x.listOffsetsMax < 11 && succeeded(e.Response) {
			return errors.New("ListOffsets was not raised")
		}
		return nil
	}
	if e.Key() != int16(kmsg.ApiVersions) {
		return fmt.Errorf("not the same:\nclient's side %x\nbroker's side %x", client, e.Response)
	}
	want, err := x.raised(e)
	if err != nil {
		return err
	}
	if !bytes.Equal(client, want) {
		return fmt.Errorf("ApiVersions:\nclient's side %x\nbroker's side %x\nwant there    %x", client, e.Response, want)
	}
	counts.raised++
	return nil
}

// succeeded says whether an ApiVersions answer has no error code, its first field.
func succeeded(apiVersions []byte) bool {
	return len(apiVersions) >= 10 && binary.BigEndian.Uint16(apiVersions[codec.ResponseFixedLen:]) == 0
}

// raised makes an ApiVersions answer with 11 as the max version of ListOffsets: it finds
// the row's six bytes (key, min, max), which occur once, and replaces the last two.
func (x sides) raised(e recorder.Exchange) ([]byte, error) {
	resp, err := kafka.DecodeResponse(e.Key(), e.Version(), e.Response)
	if err != nil {
		return nil, err
	}
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if k.ApiKey != int16(kmsg.ListOffsets) {
			continue
		}
		if k.MaxVersion != x.listOffsetsMax {
			return nil, fmt.Errorf("the broker's ListOffsets ends at %d, not %d", k.MaxVersion, x.listOffsetsMax)
		}
		row := binary.BigEndian.AppendUint16(nil, uint16(k.ApiKey))
		row = binary.BigEndian.AppendUint16(row, uint16(k.MinVersion))
		row = binary.BigEndian.AppendUint16(row, uint16(k.MaxVersion))
		if n := bytes.Count(e.Response, row); n != 1 {
			return nil, fmt.Errorf("the row %x occurs %d times", row, n)
		}
		want := bytes.Clone(e.Response)
		binary.BigEndian.PutUint16(want[bytes.Index(want, row)+4:], 11)
		return want, nil
	}
	return nil, errors.New("no row for ListOffsets")
}
