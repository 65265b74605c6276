// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"tiergate/codec"
	"tiergate/loadtest/kafka"
)

// mechanisms of a user, all with the same right to be it.
func mechanisms(user, password string) []sasl.Mechanism {
	s := scram.Auth{User: user, Pass: password}
	return []sasl.Mechanism{
		plain.Auth{User: user, Pass: password}.AsMechanism(),
		s.AsSha256Mechanism(), s.AsSha512Mechanism(),
		oauth.Auth{Token: kafka.UnsecuredToken(user)}.AsMechanism(),
	}
}

// TestSASLKafka39 has the broker whose SaslHandshake still has version 0, and no -6.
func TestSASLKafka39(t *testing.T) {
	t.Parallel()
	ctx := realBrokers(t)
	s := newSecured(t, ctx, kafka.Kafka39, withGSSAPI)
	s.testMatrix(t, ctx, "auto", kafka.SASLHandshakeV0, kafka.SASLHandshakeV1)
	s.testGSSAPI(t, ctx)
}

// TestSASLKafka43 has the native broker: the oracle of what a user is told. tiergate makes
// the answers all the same.
func TestSASLKafka43(t *testing.T) {
	t.Parallel()
	ctx := realBrokers(t)
	s := newSecured(t, ctx, kafka.Kafka43, withoutGSSAPI)
	s.testMatrix(t, ctx, "always", kafka.SASLHandshakeV1)
	t.Run("authorization", func(t *testing.T) { s.testAuthorization(t, ctx) })
	t.Run("reauthentication", func(t *testing.T) { s.testReauthentication(t, ctx) })
	t.Run("mutual TLS", func(t *testing.T) { s.testMutualTLS(t, ctx) })
	t.Run("faults", func(t *testing.T) { s.testFaults(t, ctx) })
}

// testMatrix runs every mechanism with every version of the handshake, over plaintext and
// over TLS on both sides.
func (s *secured) testMatrix(t *testing.T, ctx context.Context, mode string, versions ...kafka.SASLHandshake) {
	for _, on := range []side{{listener: saslListener, mode: mode, user: serviceUser}, s.tlsSide(saslTLS, mode)} {
		g := s.guard(t, ctx, on)
		for i, mechanism := range mechanisms(alice, passwordOf(alice)) {
			for _, version := range versions {
				t.Run(fmt.Sprintf("%s/%s/v%d", on.listener, mechanism.Name(), version), func(t *testing.T) {
					s.testSession(t, ctx, g, version, mechanism)
					wrong := mechanisms(alice, "wrong")[i]
					if wrong.Name() != "OAUTHBEARER" { // any unsecured token is right
						s.testWrongPassword(t, ctx, g, version, wrong)
					}
				})
			}
		}
	}
}

// testSession is a client's way: ApiVersions, authentication, ApiVersions again, Metadata,
// then the leader's own address, and -6 there.
func (s *secured) testSession(t *testing.T, ctx context.Context, g *guard, version kafka.SASLHandshake, mechanism sasl.Mechanism) {
	t.Helper()
	conn := dialAs(t, ctx, g.bootstrap, g.tls)
	before := offeredVersions(t, ctx, conn)
	_, err := conn.Authenticate(ctx, version, mechanism)
	must(t, err)
	after := offeredVersions(t, ctx, conn)
	if list := int16(kmsg.ListOffsets); before[list] != 11 || after[list] != 11 {
		t.Errorf("ListOffsets is offered up to %d before authentication and %d after it, want 11", before[list], after[list])
	}
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 12
	resp, err := conn.Request(ctx, metadata)
	must(t, err)
	brokers := resp.(*kmsg.MetadataResponse).Brokers
	if len(brokers) != 1 || fmt.Sprintf("%s:%d", brokers[0].Host, brokers[0].Port) != g.node {
		t.Fatalf("clients are told %+v, want only node %d at %s", brokers, nodeID, g.node)
	}

	conn = dialAs(t, ctx, g.node, g.tls)
	_, err = conn.Authenticate(ctx, version, mechanism)
	must(t, err)
	for _, l := range s.logs {
		resp, err := conn.Request(ctx, listOffsets(11, consumer, readUncommitted, pending(l.Topic)))
		must(t, err)
		epoch, _, err := s.cluster.LeaderEpoch(ctx, l.Topic)
		must(t, err)
		native := replay(t, l, epoch).NativeEarliestPendingUpload(readUncommitted, consumer, anyEpoch)
		want := answer{topic: l.Topic, timestamp: -1, position: kafka.Position{Offset: native.Offset, Epoch: native.Epoch}}
		if got := answers(resp.(*kmsg.ListOffsetsResponse)); len(got) != 1 || got[0] != want {
			t.Errorf("-6 of log state %q: %+v, want %+v", l.State.Name, got, want)
		}
	}
}

// testWrongPassword sees that the broker's refusal comes out as it is: its error, or after
// a handshake of version 0 the end of the connection.
func (s *secured) testWrongPassword(t *testing.T, ctx context.Context, g *guard, version kafka.SASLHandshake, wrong sasl.Mechanism) {
	t.Helper()
	_, err := dialAs(t, ctx, g.bootstrap, g.tls).Authenticate(ctx, version, wrong)
	switch {
	case version == kafka.SASLHandshakeV0 && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET):
		t.Errorf("wrong password, raw tokens: %v, want the end of the connection", err)
	case version == kafka.SASLHandshakeV1 && !errors.Is(err, kerr.SaslAuthenticationFailed):
		t.Errorf("wrong password: %v, want SASL_AUTHENTICATION_FAILED", err)
	}
}

// testAuthorization compares whole answers with those of the broker itself, over
// connections of the same user: of topics that it may see but not ask the configs of,
// that it may not see, and that do not exist.
func (s *secured) testAuthorization(t *testing.T, ctx context.Context) {
	must(t, s.cluster.CreateTopic(ctx, "closed", 1, 1, map[string]string{"remote.storage.enable": "true"}))
	as := mechanisms(alice, passwordOf(alice))[1]
	login := func(addr string) *kafka.Conn {
		conn := dialAs(t, ctx, addr, s.clientTLS())
		_, err := conn.Authenticate(ctx, kafka.SASLHandshakeV1, as)
		must(t, err)
		return conn
	}
	on := s.tlsSide(saslTLS, "always")
	direct, through := login(s.cluster.Node(nodeID).ListenerAddress(saslTLS)), login(s.guard(t, ctx, on).node)

	if code := configsError(t, ctx, direct, s.logs[0].Topic); code != kerr.TopicAuthorizationFailed.Code {
		t.Fatalf("alice asking for the configs of %s gets error code %d: the test needs TOPIC_AUTHORIZATION_FAILED", s.logs[0].Topic, code)
	}
	var all []want
	for _, l := range s.logs {
		all = append(all, pending(l.Topic))
	}
	others := []want{pending("closed"), pending("missing"), pending("openmissing")}
	both := append(slices.Clone(all), others...)
	for i, asked := range [][]want{all, others, both, others[:1], others[1:2], others[2:]} {
		sameAnswer(t, ctx, direct, through, i, listOffsets(11, consumer, readUncommitted, asked...))
	}

	// A service client that may not ask either: what hangs on it is -1, and the log says why.
	on.user = serviceWithoutConfigs
	blind := s.guard(t, ctx, on)
	resp, err := login(blind.node).Request(ctx, listOffsets(11, consumer, readUncommitted, all...))
	must(t, err)
	for _, got := range answers(resp.(*kmsg.ListOffsetsResponse)) {
		l := s.log(t, got.topic)
		if known := l.State.Name == "uploaded, all still local"; got.errorCode != 0 || known != (got.position != kafka.NoPosition) {
			t.Errorf("-6 of log state %q, when nobody may ask for configs: %+v, want an offset only where one is uploaded", l.State.Name, got)
		}
	}
	const denied = "not known whether topics are tiered; -6 is answered with -1 where that decides"
	if lines := blind.warnings(t); len(lines) != 1 || !strings.Contains(lines[0], denied) || !strings.Contains(lines[0], "reason=denied") {
		t.Errorf("warnings:\n%s\nwant one: %s reason=denied", strings.Join(lines, "\n"), denied)
	}
}

// log returns the log of a topic.
func (s *secured) log(t *testing.T, topic string) kafka.StateLog {
	t.Helper()
	i := slices.IndexFunc(s.logs, func(l kafka.StateLog) bool { return l.Topic == topic })
	if i < 0 {
		t.Fatalf("no log %s", topic)
	}
	return s.logs[i]
}

func configsError(t *testing.T, ctx context.Context, conn *kafka.Conn, topic string) int16 {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version = 4
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic}}
	resp, err := conn.Request(ctx, req)
	must(t, err)
	return resp.(*kmsg.DescribeConfigsResponse).Resources[0].ErrorCode
}

// sameAnswer sends a request to both and compares the bytes behind the correlation id.
func sameAnswer(t *testing.T, ctx context.Context, direct, through *kafka.Conn, i int, req *kmsg.ListOffsetsRequest) {
	t.Helper()
	var frames [2][]byte
	for j, conn := range []*kafka.Conn{direct, through} {
		_, err := conn.Send(ctx, req)
		must(t, err)
		frames[j], err = conn.Receive(ctx)
		must(t, err)
	}
	if !bytes.Equal(frames[0][codec.ResponseFixedLen:], frames[1][codec.ResponseFixedLen:]) {
		t.Errorf("request %d: the broker answers\n%x, tiergate\n%x", i, frames[0], frames[1])
	}
}

// testReauthentication keeps clients on their connections past connections.max.reauth.ms:
// they authenticate again in mid-session (KIP-368), and nothing else happens.
func (s *secured) testReauthentication(t *testing.T, ctx context.Context) {
	g := s.guard(t, ctx, s.tlsSide(reauthListener, "always"))
	t.Run("raw", func(t *testing.T) { s.testReauthRaw(t, ctx, g) })
	t.Run("clients", func(t *testing.T) { s.testReauthClients(t, ctx, g) })
}

// testReauthRaw authenticates again on one connection, and then not in time.
func (s *secured) testReauthRaw(t *testing.T, ctx context.Context, g *guard) {
	conn := dialAs(t, ctx, g.node, g.tls)
	topic := s.logs[0].Topic
	as := mechanisms(alice, passwordOf(alice))[2]
	for range 3 {
		// The broker refuses to do it again within a second (KafkaChannel.maybeBeginServerReauthentication).
		must(t, kafka.Poll(ctx, "authentication", func(ctx context.Context) error {
			lifetime, err := conn.Authenticate(ctx, kafka.SASLHandshakeV1, as)
			if err != nil && !errors.Is(err, kerr.IllegalSaslState) {
				t.Fatal(err)
			}
			if err == nil && lifetime != reauthEvery {
				t.Errorf("authenticated for %v, want %v", lifetime, reauthEvery)
			}
			return err
		}))
		_, err := conn.Request(ctx, listOffsets(11, consumer, readUncommitted, pending(topic)))
		must(t, err)
	}
	// Not in time: the broker ends the connection at a request that comes too late.
	late := kafka.Poll(ctx, "the end of the connection", func(ctx context.Context) error {
		if _, err := conn.Request(ctx, listOffsets(11, consumer, readUncommitted, pending(topic))); err == nil {
			return errors.New("the broker still answers")
		} else if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a request after the session's life: %v, want the end of the connection", err)
		}
		return nil
	})
	must(t, late)
}

// testReauthClients runs franz-go, which produces, and Kafka's console consumer, until both
// have authenticated again several times.
func (s *secured) testReauthClients(t *testing.T, ctx context.Context, g *guard) {
	const topic, records = "openreauth", 24
	must(t, s.cluster.CreateTopic(ctx, topic, 1, 1, nil))
	producer, err := kgo.NewClient(kgo.SeedBrokers(g.bootstrap), kgo.DialTLSConfig(g.tls), kgo.SASL(mechanisms(alice, passwordOf(alice))[3]),
		kgo.DisableIdempotentWrite(), kgo.DisableClientMetrics(), kgo.RecordRetries(0), kgo.RequiredAcks(kgo.AllISRAcks()))
	must(t, err)
	defer producer.Close()
	must(t, producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("0")}).FirstErr())

	consumed := make(chan kafka.Result, 1)
	go func() { consumed <- s.consoleConsumer(t, ctx, g, topic, records) }()
	every := time.NewTicker(reauthEvery / 6)
	defer every.Stop()
	for i := 1; i < records; i++ {
		select {
		case <-every.C:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		must(t, producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)}).FirstErr())
	}
	var want strings.Builder
	for i := range records {
		fmt.Fprintln(&want, i)
	}
	if r := <-consumed; r.ExitCode != 0 || r.Stdout != want.String() {
		t.Errorf("console consumer: %v\nwant on stdout %q", r, want.String())
	}
	sessions, handshakes := g.counter(t, ctx, "tiergate_sessions_opened_total", "clients"), g.counter(t, ctx, "tiergate_requests_total", `api="SASLHandshake"`)
	if handshakes < sessions+4 {
		t.Errorf("%d handshakes on %d connections: want at least four more, from clients that authenticate again", handshakes, sessions)
	}
	for _, why := range []string{"broker_closed", "out_of_order", "malformed", "tls_alert"} {
		if n := g.counter(t, ctx, "tiergate_sessions_ended_total", why); n > 0 && why != "broker_closed" || n > 1 { // one ended in testReauthRaw
			t.Errorf("%d sessions ended by %s", n, why)
		}
	}
}

// consoleConsumer runs Kafka's console consumer, with SCRAM over TLS.
func (s *secured) consoleConsumer(t *testing.T, ctx context.Context, g *guard, topic string, records int) kafka.Result {
	config := s.file("consumer.properties")
	text := fmt.Sprintf(`security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=%s
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="%s" password="%s";
`, s.file("ca.pem"), alice, passwordOf(alice))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
	r, err := s.cluster.Jars().Run(ctx, kafka.Tool{Class: "org.apache.kafka.tools.consumer.ConsoleConsumer", Args: []string{
		"--bootstrap-server", g.bootstrap, "--command-config", config, "--topic", topic, "--partition", "0", "--offset", "earliest",
		"--max-messages", fmt.Sprint(records), "--timeout-ms", "60000",
	}})
	if err != nil {
		t.Error(err)
	}
	return r
}
