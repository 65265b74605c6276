// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/codec"
	"tiergate/internal/testkit/sim"
	"tiergate/loadtest/kafka"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tiergate": main})
}

// Commands of the scripts in testdata/script beyond testscript's own:
//
//	sim VAR RELEASE[,RELEASE...]
//	    starts a simulated cluster with the sample topics, a broker of each release, and
//	    sets VAR to the addresses, comma-separated, and VAR_0, VAR_1, ... to each.
//	ports VAR COUNT
//	    finds COUNT neighbouring free ports of 127.0.0.1; sets VAR_0, VAR_1, ...
//	http STATUS URL PATTERN
//	    asks until the answer has the status and its body matches, for 20 s at the most.
//	listen ADDRESS
//	    listens there until the script ends.
//	blackhole VAR
//	    starts a broker that takes requests and never answers; sets VAR to its address.
//	request ADDRESS
//	    sends a Metadata request there and waits until the blackhole has it. The
//	    connection stays open until the script ends.
//	term
//	    sends SIGTERM to the background command that was started last.
//	expand FILE
//	    replaces $VAR and ${VAR} in a file.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"sim":       scriptSim,
			"ports":     scriptPorts,
			"http":      scriptHTTP,
			"listen":    scriptListen,
			"blackhole": scriptBlackhole,
			"request":   scriptRequest,
			"term":      scriptTerm,
			"expand":    scriptExpand,
		},
		Setup: func(env *testscript.Env) error {
			env.Values[blackholeGot{}] = make(chan struct{}, 100)
			return nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

func scriptSim(ts *testscript.TestScript, _ bool, args []string) {
	name, releases := args[0], strings.Split(args[1], ",")
	opts := sim.Options{
		Brokers: len(releases), NodeVersions: map[int32]sim.Version{},
		Topics: sim.SampleTopics(), SystemRemoteStorage: codec.RemoteStorageEnabled,
	}
	known := map[string]sim.Version{}
	for _, v := range []sim.Version{sim.Kafka38, sim.Kafka39, sim.Kafka40, sim.Kafka41, sim.Kafka42, sim.Kafka43} {
		known[v.String()] = v
	}
	for i, release := range releases {
		v, ok := known[release]
		if !ok {
			ts.Fatalf("no release %q", release)
		}
		opts.NodeVersions[int32(i)] = v
	}
	opts.Version = opts.NodeVersions[0]
	c, err := sim.New(opts)
	ts.Check(err)
	ts.Defer(c.Close)
	ts.Setenv(name, strings.Join(c.Addresses(), ","))
	for i, a := range c.Addresses() {
		ts.Setenv(fmt.Sprintf("%s_%d", name, i), a)
	}
}

func scriptPorts(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	first, err := freePorts(n)
	ts.Check(err)
	for i := range n {
		ts.Setenv(fmt.Sprintf("%s_%d", args[0], i), strconv.Itoa(first+i))
	}
}

// freePorts returns the first of n neighbouring ports that nobody listens on.
func freePorts(n int) (int, error) {
	ports, err := kafka.FreePorts(n)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

func scriptHTTP(ts *testscript.TestScript, _ bool, args []string) {
	status, url, pattern := args[0], args[1], regexp.MustCompile(args[2])
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	last := ""
	for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		ts.Check(err)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			last = err.Error()
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		last = fmt.Sprintf("%d %s", resp.StatusCode, body)
		if strconv.Itoa(resp.StatusCode) == status && pattern.Match(body) {
			return
		}
	}
	ts.Fatalf("%s: want %s and %q, last seen: %s", url, status, pattern, last)
}

func scriptListen(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", args[0])
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
}

// scriptClientID is the client id of what scriptRequest sends.
const scriptClientID = "script"

// blackholeGot is the key of the channel that gets an element with each read of such a
// request.
type blackholeGot struct{}

func scriptBlackhole(ts *testscript.TestScript, _ bool, args []string) {
	got := ts.Value(blackholeGot{}).(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				buf := make([]byte, 4096)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						_ = conn.Close()
						return
					}
					// The service client asks here too.
					if !bytes.Contains(buf[:n], []byte(scriptClientID)) {
						continue
					}
					select {
					case got <- struct{}{}:
					default:
					}
				}
			}()
		}
	}()
}

func scriptRequest(ts *testscript.TestScript, _ bool, args []string) {
	got := ts.Value(blackholeGot{}).(chan struct{})
	for len(got) > 0 {
		<-got
	}
	conn, err := net.Dial("tcp", args[0])
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close() })
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	_, err = conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID(scriptClientID)).AppendRequest(nil, req, 1))
	ts.Check(err)
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		ts.Fatalf("%s: the request did not arrive at the broker", args[0])
	}
}

func scriptTerm(ts *testscript.TestScript, _ bool, _ []string) {
	running := ts.BackgroundCmds()
	ts.Check(running[len(running)-1].Process.Signal(syscall.SIGTERM))
}

func scriptExpand(ts *testscript.TestScript, _ bool, args []string) {
	text := regexp.MustCompile(`\$\{?(\w+)\}?`).ReplaceAllStringFunc(ts.ReadFile(args[0]), func(v string) string {
		return ts.Getenv(strings.Trim(v, "${}"))
	})
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}
