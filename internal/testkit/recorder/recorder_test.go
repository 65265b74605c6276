// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// echoBroker answers every request with a bare Heartbeat v0 answer: size, correlation id
// and six bytes. It stands for a broker where only frames count.
func echoBroker(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for {
					size := make([]byte, codec.SizeLen)
					if _, err := io.ReadFull(conn, size); err != nil {
						return
					}
					frame := append(size, make([]byte, codec.Size(size))...)
					if _, err := io.ReadFull(conn, frame[codec.SizeLen:]); err != nil {
						return
					}
					resp := append(make([]byte, 4), frame[8:12]...)
					resp = append(resp, 0, 0)
					codec.PutSize(resp)
					if _, err := conn.Write(resp); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func testContext(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestRecorderKeepsWholeFramesOfBothDirections(t *testing.T) {
	ctx := testContext(t, 20*time.Second)
	r, err := Start("127.0.0.1:0", echoBroker(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := kafka.Dial(ctx, r.Address(), "me")
	if err != nil {
		t.Fatal(err)
	}
	frame, id := c.Frame(&kmsg.HeartbeatRequest{Group: "g"})
	for i := range frame { // one byte at a time: the recorder must put frames together
		if err := c.SendBytes(ctx, frame[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.SendBytes(ctx, []byte{0, 0, 0, 9, 1, 2}); err != nil { // cut short
		t.Fatal(err)
	}
	c.Close()
	if err := r.AwaitEnd(ctx); err != nil {
		t.Fatal(err)
	}
	s := r.Sessions()[0]
	exchanges, err := s.Exchanges()
	if err != nil {
		t.Fatal(err)
	}
	if len(exchanges) != 1 || !slices.Equal(exchanges[0].Request, frame) || codec.ResponseCorrelationID(exchanges[0].Response) != id {
		t.Errorf("got %x\nwant one exchange with the request %x", exchanges, frame)
	}
	if got := hex.EncodeToString(s.Rest(ToBroker)); got != "000000090102" {
		t.Errorf("rest to the broker: got %s, want 000000090102", got)
	}
}

func TestRecorderPassesHalfCloseOn(t *testing.T) {
	ctx := testContext(t, 20*time.Second)
	r, err := Start("127.0.0.1:0", echoBroker(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conn, err := net.Dial("tcp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, &kmsg.HeartbeatRequest{}, 7)
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	deadline, _ := ctx.Deadline()
	conn.SetReadDeadline(deadline)
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if want := "00000006000000070000"; hex.EncodeToString(got) != want {
		t.Errorf("after the end of our side: got %x, want %s", got, want)
	}
}

func TestExchangesRefusesAnswersOutOfOrder(t *testing.T) {
	request := func(id int32) Frame {
		return Frame{Direction: ToBroker, Bytes: kmsg.NewRequestFormatter().AppendRequest(nil, &kmsg.HeartbeatRequest{}, id)}
	}
	response := func(id byte) Frame {
		return Frame{Direction: ToClient, Bytes: []byte{0, 0, 0, 4, 0, 0, 0, id}}
	}
	f := func(wantErr string, frames ...Frame) {
		t.Helper()
		_, err := (&Session{frames: frames}).Exchanges()
		if got := errorText(err); got != wantErr {
			t.Errorf("got error %q, want %q", got, wantErr)
		}
	}
	f("", request(1), request(2), response(1), response(2))
	f("", request(1), request(2), response(2)) // 1 may be a Produce with acks=0
	f("response with correlation id 1 answers no request that is due: 0000000400000001", request(1), request(2), response(2), response(1))
	f("response with correlation id 9 answers no request that is due: 0000000400000009", request(1), response(9))
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
