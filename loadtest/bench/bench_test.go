// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"io"
	"math"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience bounds every wait of these tests; none depends on how long it takes.
const patience = 30 * time.Second

// newBroker starts a server that lives as long as the test.
func newBroker(t *testing.T) *Broker {
	t.Helper()
	b, err := NewBroker()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve() }()
	t.Cleanup(func() {
		b.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return b
}

// exchangeAll lets conns connections do quota exchanges each and returns what was done.
func exchangeAll(t *testing.T, address string, x Exchange, conns, pipeline int, quota int64, compares bool) (*generator, error) {
	t.Helper()
	g, err := newGenerator(x, pipeline, newPattern())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	g.compares = compares
	if err = g.connect(address, conns, quota); err != nil {
		t.Fatal(err)
	}
	return g, g.run(t.Context(), time.Now().Add(patience))
}

func TestExchanges(t *testing.T) {
	for _, tt := range []struct {
		name            string
		exchange        Exchange
		conns, pipeline int
		quota           int64
		wantBytes       int64
	}{
		{"small", Exchange{fetchKey, 200, 200}, 3, 8, 1000, 3 * 1000 * (200 - 8)},
		{"large answers", Exchange{fetchKey, 100, 3<<20 + 17}, 2, 2, 5, 2 * 5 * (3<<20 + 9)},
		{"answers at the edge of large", Exchange{fetchKey, 100, readSize + 1}, 2, 3, 50, 2 * 50 * (readSize - 7)},
		{"large requests", Exchange{produceKey, 3<<20 + 17, ackSize}, 2, 2, 5, 2 * 5 * (3<<20 + 17)},
		{"fewer requests than the pipeline takes", Exchange{fetchKey, 200, 200}, 2, 8, 3, 2 * 3 * (200 - 8)},
	} {
		for _, compares := range []bool{false, true} {
			g, err := exchangeAll(t, newBroker(t).Address(), tt.exchange, tt.conns, tt.pipeline, tt.quota, compares)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			want := int64(tt.conns) * tt.quota
			if g.unanswered != 0 || g.tally.requests != want || g.tally.latency.n != uint64(want) || g.tally.bytes != tt.wantBytes {
				t.Errorf("%s: %d unanswered, %d answers, %d latencies, %d bytes; want 0, %d, %d, %d", tt.name,
					g.unanswered, g.tally.requests, g.tally.latency.n, g.tally.bytes, want, want, tt.wantBytes)
			}
		}
	}
}

// TestCompareFindsFault flips one byte on the way and expects its exact place.
func TestCompareFindsFault(t *testing.T) {
	b := newBroker(t)
	const fault = 1_234_567 // in the second answer: bytes from the start of the first
	const length = 1 << 20
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		client, err := listener.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		broker, err := net.Dial("tcp", b.Address())
		if err != nil {
			return
		}
		defer broker.Close()
		go func() {
			_, _ = io.Copy(broker, client)
			_ = broker.Close() // the client has left: nothing more is wanted
		}()
		_, _ = io.CopyN(client, broker, fault)
		one := make([]byte, 1)
		_, _ = io.ReadFull(broker, one)
		one[0] ^= 0x40
		_, _ = client.Write(one)
		_, _ = io.Copy(client, broker)
	}()
	t.Cleanup(func() {
		listener.Close()
		<-relayed
	})
	g, err := exchangeAll(t, listener.Addr().String(), Exchange{fetchKey, 100, length}, 1, 1, 3, true)
	if err == nil || !strings.Contains(err.Error(), "answer 1, byte 185991: ") {
		t.Errorf("%d answers, error %v; want one that says answer 1, byte %d", g.tally.requests, err, fault-length)
	}
	g.close() // the relay ends with its client
}

func TestOverTLS(t *testing.T) {
	b := newBroker(t)
	cert, err := newCertificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	config, err := ServerTLS(cert.pem)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = ServeCopy(listener, b.Address(), config) }()
	for _, x := range []Exchange{{fetchKey, 200, 200}, {fetchKey, 100, 1 << 20}, {produceKey, 1 << 20, ackSize}} {
		g := &tlsGenerator{exchange: x, pipeline: 2, pattern: newPattern()}
		if err = g.connect(t.Context(), listener.Addr().String(), 2, cert.clientTLS()); err != nil {
			t.Fatal(err)
		}
		g.reset()
		for deadline := time.Now().Add(patience); g.count().requests < 20 && time.Now().Before(deadline); {
			if err = g.run(t.Context(), time.Millisecond); err != nil {
				t.Errorf("%+v: %v", x, err)
				break
			}
		}
		total := g.stop()
		g.close()
		g.merge(&total)
		if total.requests < 20 || total.bytes < 20*int64(max(x.Request, x.Answer)-8) || int64(total.latency.n) < 20 {
			t.Errorf("%+v: %d answers, %d bytes, %d latencies, want at least 20 of each", x, total.requests, total.bytes, total.latency.n)
		}
	}
}

func TestHistogram(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 129, 1000, 1_000_003, 1 << 40} {
		got := upper(bucketOf(v))
		if got < v || float64(got) > float64(v)*(1+1.0/64) {
			t.Errorf("%d is in a bucket that ends at %d", v, got)
		}
		if got != v && bucketOf(got) != bucketOf(v) || bucketOf(got+1) != bucketOf(v)+1 {
			t.Errorf("%d: bucket %d ends at %d, which is in bucket %d; the next is in %d", v, bucketOf(v), got, bucketOf(got), bucketOf(got+1))
		}
	}
	var h, other histogram
	for i := range 50 {
		h.add(time.Duration(i + 1))
		other.add(time.Duration(i + 51))
	}
	h.merge(&other)
	for q, want := range map[float64]time.Duration{0.001: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := h.quantile(q); got != want {
			t.Errorf("quantile %v of 1 to 100: %d, want %d", q, got, want)
		}
	}
	if got := new(histogram).quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing: %d", got)
	}
}

func TestProcText(t *testing.T) {
	got, err := cpuOfStat([]byte("42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 150 27 8 9 20 0 5 0 100 200 300\n"))
	if err != nil || got != 1770*time.Millisecond {
		t.Errorf("CPU of a process: %v, %v, want 1.77s", got, err)
	}
	got, err = busyOfStat([]byte("cpu  100 1 20 5000 7 3 4 2 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	if err != nil || got != 1300*time.Millisecond {
		t.Errorf("CPU of the machine: %v, %v, want 1.3s", got, err)
	}
	n, err := kilobytes([]byte("Name:\tx\nVmHWM:\t   12 kB\nVmRSS:\t    7 kB\n"), "VmRSS:")
	if err != nil || n != 7<<10 {
		t.Errorf("VmRSS: %d, %v, want 7168", n, err)
	}
	if _, err = kilobytes([]byte("Name:\tx\n"), "VmRSS:"); err == nil {
		t.Error("a status without VmRSS is no error")
	}
}

// TestVerdicts has two rounds in which the machine is slow in the second, for both.
func TestVerdicts(t *testing.T) {
	const name = "down-1MiB-16"
	sample := func(peer string, round int, gb, cpu float64) Sample {
		return Sample{Workload: name, Peer: peer, Round: round, Seconds: 1, Bytes: int64(gb * 1e9), CPU: cpu}
	}
	r := Result{Samples: []Sample{
		sample(PeerTiergate, 0, 2, 1), sample(PeerHAProxy, 0, 2, 0.8), sample(PeerNginx, 0, 1, 0.7),
		sample(PeerTiergate, 1, 1, 1), sample(PeerHAProxy, 1, 1, 0.8), sample(PeerNginx, 1, 0.9, 1.2),
	}}
	got := r.Verdicts()
	want := []Verdict{
		{Target: "bulk throughput", Workload: name, Against: PeerHAProxy, Value: 1, Bound: 0.95, Held: true},
		{Target: "bulk CPU per GB", Workload: name, Against: PeerHAProxy, Value: 1.25, Bound: 1.15, Held: false},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v, want %+v", got, want)
	}
	for i := range want {
		if math.Abs(got[i].Value-want[i].Value) > 1e-9 {
			t.Errorf("%s: %v, want %v", want[i].Target, got[i].Value, want[i].Value)
		}
		if got[i].Value = want[i].Value; got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}

// TestVerdictsOfCounts has turns that count beside one that does not.
func TestVerdictsOfCounts(t *testing.T) {
	const name = "up-1MiB-16"
	counting := func(peer string, waits, useless int64) Sample {
		return Sample{Workload: name, Peer: peer, Bytes: 2e9, Counts: &Counts{Waits: waits, Calls: 10 * waits, Events: waits, Useless: useless}}
	}
	r := Result{Samples: []Sample{
		{Workload: name, Peer: PeerEpoll, Seconds: 1, Bytes: 1e9, CPU: 1},
		counting(PeerEpoll, 900, 202), counting(PeerHAProxy, 500, 0),
	}}
	want := []Verdict{
		{Target: "epoll waits per GB, event_loop: epoll", Workload: name, Against: PeerHAProxy, Value: 1.8, Bound: 1.5},
		{Target: "system calls per GB, event_loop: epoll", Workload: name, Against: PeerHAProxy, Value: 1.8, Bound: 1.5},
		{Target: "useless events per GB, event_loop: epoll", Workload: name, Value: 101, Bound: 100, Unit: "per GB"},
	}
	if got := r.Verdicts(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	text := r.Text()
	row := "| tiergate-epoll |         4500 |         450 |    450 |            101 |"
	if !strings.Contains(text, "| per GB         | system calls | epoll waits | events | useless events |") || !strings.Contains(text, row) {
		t.Errorf("no row %q in\n%s", row, text)
	}
}

func TestVerdictsOfMemory(t *testing.T) {
	r := Result{Samples: []Sample{{Workload: "idle-1000", Peer: PeerTiergate, Seconds: 1, RSS: 31 << 20, Before: 21 << 20}}}
	want := []Verdict{
		{Target: "memory per idle connection", Workload: "idle-1000", Value: 10 * 1.024, Bound: 8, Unit: "KiB"},
		{Target: "memory at rest, without connections", Workload: "idle-1000", Value: 21, Bound: 20, Unit: "MiB"},
	}
	if got := r.Verdicts(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPerfText(t *testing.T) {
	p := &perfCounter{counts: &Counts{}}
	p.events = perfEvents(p.counts)
	const text = "Events disabled\n7;;raw_syscalls:sys_enter;1;100.00;;\n1;;syscalls:sys_enter_epoll_wait;1;100.00;;\n2;;syscalls:sys_enter_epoll_wait;1;100.00;;\n" +
		"10;;syscalls:sys_enter_epoll_pwait;1;100.00;;\n20;;syscalls:sys_enter_epoll_pwait;1;100.00;;\n3;;syscalls:sys_enter_epoll_ctl;1;100.00;;\n" +
		"4;;syscalls:sys_enter_splice;1;100.00;;\n5;;syscalls:sys_enter_futex;1;100.00;;\n6;;context-switches;1;100.00;;\n"
	want := Counts{Calls: 7, Waits: 11, Blocking: 22, Controls: 3, Splices: 4, Futexes: 5, Switches: 6}
	if err := p.read([]byte(text)); err != nil || *p.counts != want {
		t.Errorf("%+v, %v, want %+v", *p.counts, err, want)
	}
	for _, bad := range []string{"", strings.Replace(text, "7;", "<not counted>;", 1), strings.Replace(text, "6;;context-switches", "", 1)} {
		if err := p.read([]byte(bad)); err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestMetricsDialogue(t *testing.T) {
	cmd := exec.Command("sh", "-c", `while read -r line; do
		printf '%s\n' "tiergate_loop_events_total used 5" "tiergate_loop_events_total useless 2" "tiergate_received_bytes_total requests 1e+06" \
			"tiergate_received_bytes_total responses 3" "tiergate_handshakes 9" ""; done`)
	d, given, err := attach(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range given {
		f.Close()
	}
	for range 2 {
		if got, err := d.counts(); err != nil || got != (loopCounts{events: 7, useless: 2, bytes: 1_000_003}) {
			t.Errorf("%+v, %v, want 7 events, 2 useless, 1000003 bytes", got, err)
		}
	}
	d.close()
	if err = cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := medianOf(tt.in); got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.in, got, tt.want)
		}
	}
	if got := medianOf(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing: %v, want NaN", got)
	}
}

func TestInsert(t *testing.T) {
	got, err := Insert([]byte("a\n"+markBegin+"\nold\n"+markEnd+"\nz\n"), "new\n")
	if want := "a\n" + markBegin + "\nnew\n" + markEnd + "\nz\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, without := range []string{"", markBegin, markEnd + markBegin} {
		if _, err = Insert([]byte(without), "new"); err == nil {
			t.Errorf("no error for %q", without)
		}
	}
}

func TestTable(t *testing.T) {
	got := table{head: []string{"peer", "GB/s"}, rows: [][]string{{"x", "1.00"}, {"longer", "10"}}}.String()
	want := "| peer   | GB/s |\n|--------|-----:|\n| x      | 1.00 |\n| longer |   10 |\n"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestMissing expects a sentence that says what to install.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	want := "haproxy is missing: install it with \"apt-get install haproxy\" (the service need not run)"
	if err := find(PeerHAProxy); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
