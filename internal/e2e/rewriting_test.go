// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"tiergate/internal/testkit/recorder"
	"tiergate/loadtest/kafka"
)

// testRewriting has ordinary clients talk through the listener that rewrites addresses.
// They must find everything, and never be told an address of the broker.
func testRewriting(t *testing.T, ctx context.Context, s *stand, versions ...string) {
	testControllersStay(t, ctx, s)
	franzTraffic(t, ctx, s.rewriteA.Address(), "rewriting-franz-go")
	for _, v := range versions {
		javaTraffic(t, ctx, jars(t, ctx, v), s.rewriteA.Address(), "rewriting-java-"+v)
	}
	told := make(map[string]int)
	frames := 0
	for _, r := range []*recorder.Recorder{s.rewriteA, s.rewriteNodeA} {
		must(t, r.AwaitEnd(ctx))
		frames += addressesTold(t, r, told)
	}
	report(t, "rewriting before Kafka %s, clients franz-go and Java %v: %d responses name %v",
		s.cluster.Jars().Version, versions, frames, told)
	if n := told[s.rewriteNodeA.Address()]; n == 0 || len(told) != 1 {
		t.Errorf("clients were told %v, want only %s", told, s.rewriteNodeA.Address())
	}
	if len(s.rewriteNodeA.Sessions()) == 0 {
		t.Error("no client followed the address that it was told")
	}
}

// testControllersStay asks for the quorum, as kafka-metadata-quorum does: the addresses of
// controllers come as the broker gives them, also that of the node that is a broker too,
// and none counts as a broker without an address.
func testControllersStay(t *testing.T, ctx context.Context, s *stand) {
	t.Helper()
	quorum := kmsg.NewPtrDescribeQuorumRequest()
	quorum.Version = 2
	topic, partition := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
	topic.Topic, topic.Partitions = "__cluster_metadata", append(topic.Partitions, partition)
	quorum.Topics = append(quorum.Topics, topic)
	nodes := func(addr string) []kmsg.DescribeQuorumResponseNode {
		conn := dial(t, ctx, addr)
		resp, err := conn.Request(ctx, quorum)
		must(t, err)
		conn.Close() // the recorder waits for the end of all sessions
		return resp.(*kmsg.DescribeQuorumResponse).Nodes
	}
	want := nodes(s.cluster.Node(nodeID).Address())
	got := nodes(s.rewriteA.Address())
	if len(want) == 0 || len(want[0].Listeners) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("nodes of the quorum are %+v, want %+v", got, want)
	}
	unmapped, err := s.gate.Metric(ctx, "tiergate_unmapped_nodes_total")
	must(t, err)
	if unmapped != 0 {
		t.Errorf("%v nodes without an address were counted, want none", unmapped)
	}
}

// addressesTold decodes every response that clients got, counts the addresses in them,
// and returns the number of responses.
func addressesTold(t *testing.T, r *recorder.Recorder, told map[string]int) (responses int) {
	t.Helper()
	for _, session := range r.Sessions() {
		exchanges, err := session.Exchanges()
		must(t, err)
		for _, e := range exchanges {
			if e.Response == nil {
				continue
			}
			responses++
			resp, err := kafka.DecodeResponse(e.Key(), e.Version(), e.Response)
			if err != nil {
				t.Errorf("%v: %v", e, err)
				continue
			}
			hostPorts(reflect.ValueOf(resp), func(addr string) { told[addr]++ })
		}
	}
	return responses
}

// hostPorts calls f for every structure in v that has a Host and a Port, whatever API it
// is of: brokers, coordinators, node endpoints. Nodes that are none (port -1 or 0, as in
// an answer that found no coordinator) do not count.
func hostPorts(v reflect.Value, f func(addr string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			hostPorts(v.Elem(), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			hostPorts(v.Index(i), f)
		}
	case reflect.Struct:
		host, port := v.FieldByName("Host"), v.FieldByName("Port")
		if host.IsValid() && host.Kind() == reflect.String && port.IsValid() && port.CanInt() && port.Int() > 0 {
			f(net.JoinHostPort(host.String(), strconv.FormatInt(port.Int(), 10)))
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				hostPorts(v.Field(i), f)
			}
		}
	}
}

func TestHostPortsFindsEveryKindOfAddress(t *testing.T) {
	f := func(resp kmsg.Response, want ...string) {
		t.Helper()
		var got []string
		hostPorts(reflect.ValueOf(resp), func(addr string) { got = append(got, addr) })
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%T: got %v, want %v", resp, got, want)
		}
	}
	f(&kmsg.MetadataResponse{Brokers: []kmsg.MetadataResponseBroker{{Host: "a", Port: 1}, {Host: "b", Port: 2}}}, "a:1", "b:2")
	f(&kmsg.FindCoordinatorResponse{Host: "c", Port: 3}, "c:3")
	f(&kmsg.FindCoordinatorResponse{Coordinators: []kmsg.FindCoordinatorResponseCoordinator{{Host: "d", Port: 4}, {Port: -1}}}, "d:4")
	f(&kmsg.FetchResponse{Brokers: []kmsg.FetchResponseBroker{{Host: "::1", Port: 5}}}, "[::1]:5")
	f(&kmsg.ProduceResponse{Brokers: []kmsg.ProduceResponseBroker{{Host: "e", Port: 6}}}, "e:6")
	f(&kmsg.DescribeClusterResponse{Brokers: []kmsg.DescribeClusterResponseBroker{{Host: "f", Port: 7}}}, "f:7")
	f(&kmsg.HeartbeatResponse{})
}
