// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const brokenPipe = syscall.EPIPE

func TestLatency(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	says(t, client, target, "before")
	f := NewLatency(120*time.Millisecond, 20*time.Millisecond, r)
	begin(t, f)
	began := time.Now()
	says(t, client, target, "there")
	says(t, target, client, "and back")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("there and back in %v, want 2 times 100 to 140 ms", took)
	}
	end(t, f)
	if got := f.String(); got != "120ms ± 20ms more in each direction" {
		t.Errorf("%q", got)
	}
}

// What is delayed goes out at the end of the fault, in order, and with it the end.
func TestLatencyEnds(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	f := NewLatency(time.Hour, time.Hour, r)
	begin(t, f)
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintf(&want, "part %d,", i)
		send(t, client, fmt.Sprintf("part %d,", i))
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	hearsNothing(t, target)
	end(t, f)
	if got, err := io.ReadAll(target); err != nil || string(got) != want.String() {
		t.Errorf("%q, %v, want %q", got, err, want.String())
	}
}

// Latency is no rate: what is sent while other bytes are under way is not late twice.
func TestLatencyDelaysAllAlike(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	const parts, each = 50, 300 * time.Millisecond
	begin(t, NewLatency(each, 0, r))
	began := time.Now()
	for range parts {
		send(t, client, "x") // without Nagle's delay: a packet each
	}
	if _, err := io.ReadFull(target, make([]byte, parts)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < each || took > parts*each/2 {
		t.Errorf("%d parts took %v, want little more than %v", parts, took, each)
	}
}

func TestBandwidth(t *testing.T) {
	r, s := stand(t)
	// Two connections share it.
	clientA, targetA := connect(t, r, s)
	clientB, targetB := connect(t, r, s)
	const limit = 512 << 10
	f := NewBandwidth(limit, r)
	begin(t, f)
	began := time.Now()
	done := make(chan error, 2)
	for _, target := range []*net.TCPConn{targetA, targetB} {
		go func() {
			_, err := io.CopyN(io.Discard, target, limit/2)
			done <- err
		}()
	}
	for _, client := range []*net.TCPConn{clientA, clientB} {
		go func() { _, _ = client.Write(make([]byte, limit/2)) }()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took < time.Second/2 {
		t.Errorf("a second's worth of bytes took %v", took)
	}
	end(t, f)
	if got := f.String(); got != "524288 bytes per second in each direction" {
		t.Errorf("%q", got)
	}
}

func TestBandwidthEnds(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	f := NewBandwidth(0, r) // 1 KiB per second: it would be an hour
	begin(t, f)
	go func() { _, _ = client.Write(make([]byte, 4<<20)) }()
	if _, err := io.ReadFull(target, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	end(t, f)
	if _, err := io.ReadFull(target, make([]byte, 4<<20-100)); err != nil {
		t.Error(err)
	}
}

// Two faults of one relay do not take each other back.
func TestConditionsAreIndependent(t *testing.T) {
	r, _ := stand(t)
	late, narrow := NewLatency(time.Second, 0, r), NewBandwidth(2000, r)
	begin(t, late)
	begin(t, narrow)
	end(t, late)
	if got, want := r.link.Load().condition, (condition{rate: 2000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	end(t, narrow)
	if got, want := r.link.Load().condition, (condition{}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A fault begins and ends although a client reads nothing, and others are not held up.
func TestConditionsDoNotWaitForReaders(t *testing.T) {
	r, s := stand(t)
	_, stalled := connect(t, r, s)
	fills(t, stalled)
	for _, f := range []Fault{NewLatency(time.Millisecond, 0, r), NewBandwidth(1<<20, r), NewHalfOpen(0, 0), NewCut(RST, 1, 0)} {
		begin(t, f)
		client, target := connect(t, r, s)
		says(t, client, target, "hello")
		end(t, f)
		says(t, target, client, "hello")
	}
}

func TestCutByFIN(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	says(t, client, target, "hello")
	f := NewCut(FIN, 1, 0, r)
	if got := f.String(); got != "100 % of the connections cut by FIN" {
		t.Errorf("%q", got)
	}
	begin(t, f)
	endsWith(t, "the client", client, io.EOF)
	endsWith(t, "the target", target, io.EOF)
	// What is sent to a closed socket is answered by a reset.
	writesUntil(t, "the client", client, reset, brokenPipe)
	writesUntil(t, "the target", target, reset, brokenPipe)
	end(t, f)
	if got := f.String(); got != "1 of 1 connections cut by FIN" || f.Kind() != KindCutFIN {
		t.Errorf("%s: %q", f.Kind(), got)
	}
	await(t, "the relay has let go of the connection", func() bool { return r.Open() == 0 })
	client, target = connect(t, r, s)
	says(t, client, target, "new ones are served")
}

func TestCutByRST(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	says(t, client, target, "hello") // it was there before, and is idle
	f := NewCut(RST, 1, 0, r)
	begin(t, f)
	endsWith(t, "the client", client, reset)
	endsWith(t, "the target", target, reset)
	end(t, f)
	if got := f.String(); got != "1 of 1 connections cut by RST" || f.Kind() != KindCutRST {
		t.Errorf("%s: %q", f.Kind(), got)
	}
}

// Bytes are under way in both directions, and delayed, and nobody reads.
func TestCutOfWhatIsUnderWay(t *testing.T) {
	for _, ending := range []Ending{FIN, RST} {
		t.Run(ending.String(), func(t *testing.T) {
			r, s := stand(t)
			client, target := connect(t, r, s)
			begin(t, NewLatency(time.Millisecond, 0, r))
			fills(t, client)
			fills(t, target)
			begin(t, NewCut(ending, 1, 0, r))
			writesUntil(t, "the client", client, reset, brokenPipe)
			writesUntil(t, "the target", target, reset, brokenPipe)
			await(t, "the relay has let go of the connection", func() bool { return r.Open() == 0 })
		})
	}
}

func TestCutChooses(t *testing.T) {
	r, s := stand(t)
	var clients []*net.TCPConn
	for range 10 {
		client, target := connect(t, r, s)
		says(t, client, target, "hello")
		clients = append(clients, client)
	}
	f := NewCut(RST, 0.3, 7, r)
	begin(t, f)
	if got := f.String(); got != "3 of 10 connections cut by RST" {
		t.Errorf("%q", got)
	}
	await(t, "7 are left", func() bool { return r.Open() == 7 })
	var cut []int
	for i, client := range clients {
		_ = client.SetReadDeadline(time.Now().Add(quiet))
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			cut = append(cut, i)
		}
	}
	if want := []int{0, 2, 9}; !slices.Equal(cut, want) {
		t.Errorf("cut %v, want %v", cut, want)
	}
}

func TestChoose(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for share, want := range map[float64]int{0: 1, 0.01: 1, 0.25: 3, 0.5: 5, 1: 10, 2: 10} {
		seen := map[int]int{}
		source := rand.New(rand.NewPCG(1, 1))
		for range 1000 {
			chosen := choose(source, all, share)
			if len(chosen) != want || !slices.IsSorted(chosen) || len(slices.Compact(chosen)) != want {
				t.Fatalf("share %g: %v, want %d different ones in order", share, chosen, want)
			}
			for _, i := range chosen {
				seen[i]++
			}
		}
		for i := range all { // the seed is fixed: this is the same every time
			if n := seen[i]; n < want*70 || n > want*130 {
				t.Errorf("share %g: %d was chosen %d times of 1000, want about %d", share, i, n, want*100)
			}
		}
	}
	if chosen := choose(rand.New(rand.NewPCG(1, 1)), []int{}, 1); len(chosen) != 0 {
		t.Errorf("%v of none", chosen)
	}
}

func TestHalfOpen(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	says(t, client, target, "hello")
	f := NewHalfOpen(1, 0, r)
	begin(t, f)
	// More than all buffers between them hold: it is swallowed.
	for _, conn := range []*net.TCPConn{client, target} {
		if _, err := conn.Write(make([]byte, 32<<20)); err != nil {
			t.Fatalf("a write to a half-open connection: %v", err)
		}
	}
	hearsNothing(t, client)
	hearsNothing(t, target)
	// New connections are served.
	client2, target2 := connect(t, r, s)
	says(t, client2, target2, "hello")
	// The end of one is not told to the other.
	_ = client.Close()
	hearsNothing(t, target)
	if got := f.String(); got != "1 of 1 connections silent" || f.Kind() != KindHalfOpen {
		t.Errorf("%s: %q", f.Kind(), got)
	}
	end(t, f)
	endsWith(t, "the target", target, reset)
	says(t, client2, target2, "still here")
}

func TestHalfOpenOfWhatIsUnderWay(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	fills(t, client)
	f := NewHalfOpen(1, 0, r)
	begin(t, f)
	if _, err := client.Write(make([]byte, 32<<20)); err != nil {
		t.Fatalf("a write to a half-open connection: %v", err)
	}
	_ = target.SetLinger(0)
	_ = target.Close()
	hearsNothing(t, client)
	end(t, f)
	endsWith(t, "the client", client, reset)
}

func TestBlackhole(t *testing.T) {
	r, s := stand(t)
	client, target := connect(t, r, s)
	says(t, client, target, "hello")
	f := NewBlackhole(r)
	begin(t, f)
	newcomer := dial(t, r)
	for _, conn := range []*net.TCPConn{client, newcomer} {
		if _, err := conn.Write(make([]byte, 32<<20)); err != nil {
			t.Fatalf("a write into a black hole: %v", err)
		}
		hearsNothing(t, conn)
	}
	hearsNothing(t, target)
	end(t, f)
	for _, conn := range []*net.TCPConn{client, newcomer, target} {
		endsWith(t, conn.LocalAddr().String(), conn, reset)
	}
	// The next connection of the target is this one: the newcomer's never came.
	client, target = connect(t, r, s)
	says(t, client, target, "hello")
}

// Conditions come and go while bytes move: all of them arrive, in order.
func TestConditionsComeAndGo(t *testing.T) {
	r, s := stand(t)
	sent := random(1 << 20)
	done := make(chan error, 16)
	for range 8 {
		client, target := connect(t, r, s)
		for _, ends := range [][2]*net.TCPConn{{client, target}, {target, client}} {
			go func() {
				for at := 0; at < len(sent); at += 1 << 13 {
					_, _ = ends[0].Write(sent[at:min(at+1<<13, len(sent))])
				}
				_ = ends[0].CloseWrite()
			}()
			go func() {
				got, err := io.ReadAll(ends[1])
				if err == nil && !bytes.Equal(got, sent) {
					err = fmt.Errorf("%d bytes arrived, not the %d that were sent", len(got), len(sent))
				}
				done <- err
			}()
		}
	}
	source := rand.New(rand.NewPCG(3, 3))
	for open := 16; open > 0; {
		f := NewLatency(time.Duration(source.IntN(20))*time.Millisecond, 10*time.Millisecond, r)
		if source.IntN(2) == 0 {
			f = NewBandwidth(1<<18+source.Int64N(1<<22), r)
		}
		begin(t, f)
		select {
		case err := <-done:
			open--
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Millisecond):
		}
		end(t, f)
	}
}

// The relay passes what the machine can: a load test through it measures the target.
func BenchmarkRelay(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	r, err := NewRelay("127.0.0.1:0", listener.Addr().String(), 0)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	client, err := net.Dial("tcp", r.Address())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	block := make([]byte, 1<<20)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		if _, err := client.Write(block); err != nil {
			b.Fatal(err)
		}
	}
}
