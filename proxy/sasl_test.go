// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"

	"tiergate/codec"
	"tiergate/rewrite"
)

// handshakeV0 is a SaslHandshake request of version 0.
func handshakeV0(id int32, mechanism string) []byte {
	return request(saslHandshakeKey, 0, id, codec.AppendString(nil, codec.Classic, mechanism)...)
}

// Raw tokens after a SaslHandshake of version 0 pass in both directions, whatever the
// mechanism, and Kafka messages behind them are told apart.
func TestRawSASLTokens(t *testing.T) {
	ok := response(1, 0, 0, 0, 0, 0, 0)
	after, afterAnswer := request(18, 2, 77), response(77, 0, 9)
	for _, c := range []struct {
		name    string
		client  [][]byte
		answers [][]byte
	}{
		{"PLAIN", [][]byte{frameOf([]byte("\x00alice\x00secret")...)}, [][]byte{frameOf()}},
		{
			"SCRAM-SHA-256",
			[][]byte{frameOf([]byte("n,,n=alice,r=x")...), frameOf([]byte("c=biws,r=xy,p=z")...)},
			[][]byte{frameOf([]byte("r=xy,s=1,i=4096")...), frameOf([]byte("v=abc")...)},
		},
		{"OAUTHBEARER", [][]byte{frameOf([]byte("n,,\x01auth=Bearer t\x01\x01")...)}, [][]byte{frameOf()}},
		// The last token of GSSAPI gets no answer, and the one before it is empty.
		{
			"GSSAPI",
			[][]byte{frameOf(0x60, 0x82, 1), frameOf(), frameOf(0x05, 0x04, 1)},
			[][]byte{frameOf(0x60, 2), frameOf(0x05, 0x04, 0), nil},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroker(t, func(conn *net.TCPConn) {
				script := append([][]byte{handshakeV0(1, c.name)}, c.client...)
				replies := append([][]byte{ok}, c.answers...)
				for i, want := range append(script, after) {
					got, err := readFrame(conn)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("broker got %x (%v), want %x", got, err, want)
						return
					}
					if i < len(replies) {
						_, _ = conn.Write(replies[i])
					} else {
						_, _ = conn.Write(afterAnswer)
					}
				}
			})
			s := newServer(t, b.dial, rewrite.Rules{PendingUpload: rewrite.PendingUploadOff})
			conn := connect(t, s)
			say := func(out, want []byte) {
				t.Helper()
				if _, err := conn.Write(out); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(want))
				if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("client got %x (%v), want %x", got, err, want)
				}
			}
			say(handshakeV0(1, c.name), ok)
			for i := range c.client {
				say(c.client[i], c.answers[i])
			}
			say(after, afterAnswer)
		})
	}
}

// A handshake that fails is followed by Kafka messages, not by tokens; and a request
// pipelined behind it waits for the answer.
func TestRawSASLRefused(t *testing.T) {
	refused := response(1, 0, 33, 0, 0, 0, 0)
	b := newBroker(t, func(conn *net.TCPConn) {
		for _, answer := range [][]byte{refused, response(2, 5)} {
			if _, err := readFrame(conn); err != nil {
				t.Error(err)
			}
			_, _ = conn.Write(answer)
		}
	})
	s := newServer(t, b.dial, rewrite.Rules{})
	conn := connect(t, s)
	if _, err := conn.Write(append(handshakeV0(1, "NONE"), request(3, 1, 2)...)); err != nil {
		t.Fatal(err)
	}
	want := append(refused, response(2, 5)...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %x (%v), want %x", got, err, want)
	}
}
