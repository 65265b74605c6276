// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tiergate/loadtest/kafka"
	"tiergate/rewrite"
)

// definition is a message definition of Kafka: common/message/*.json of its clients jar.
type definition struct {
	APIKey           *int16 `json:"apiKey"`
	Type             string
	Name             string
	ValidVersions    string
	FlexibleVersions string
	// Listeners are those that serve a request: broker, controller, zkBroker.
	Listeners     []string
	Fields        []field
	CommonStructs []field
}

type field struct {
	Name     string
	Type     string
	Versions string
	Fields   []field
}

// versions is a range as definitions have it: "none", "3", "0-3", "4+".
type versions struct{ first, last int }

const open = 1<<15 - 1

func parseVersions(t *testing.T, s string) versions {
	t.Helper()
	if s == "none" {
		return versions{0, -1}
	}
	m := regexp.MustCompile(`^(\d+)(?:-(\d+)|(\+))?$`).FindStringSubmatch(s)
	if m == nil {
		t.Fatalf("versions %q", s)
	}
	first, _ := strconv.Atoi(m[1])
	v := versions{first, first}
	switch {
	case m[2] != "":
		v.last, _ = strconv.Atoi(m[2])
	case m[3] != "":
		v.last = open
	}
	return v
}

func (v versions) and(o versions) versions {
	return versions{max(v.first, o.first), min(v.last, o.last)}
}

func (v versions) String() string {
	switch v.last {
	case open:
		return fmt.Sprintf("%d+", v.first)
	case v.first:
		return fmt.Sprint(v.first)
	}
	return fmt.Sprintf("%d-%d", v.first, v.last)
}

// definitions reads all message definitions of a Kafka, by name.
func definitions(t *testing.T, jar string) map[string]definition {
	t.Helper()
	archive, err := zip.OpenReader(jar)
	must(t, err)
	defer archive.Close()
	comment := regexp.MustCompile(`(?m)^\s*//.*$`)
	all := map[string]definition{}
	for _, file := range archive.File {
		if path.Dir(file.Name) != "common/message" || path.Ext(file.Name) != ".json" {
			continue
		}
		f, err := file.Open()
		must(t, err)
		text, err := io.ReadAll(f)
		must(t, err)
		f.Close()
		var d definition
		if err := json.Unmarshal(comment.ReplaceAll(text, nil), &d); err != nil {
			t.Fatalf("%s: %v", file.Name, err)
		}
		all[d.Name] = d
	}
	if len(all) < 150 {
		t.Fatalf("%d message definitions in %s", len(all), jar)
	}
	return all
}

// addresses lists the fields of a message that may be an address, by their path: hosts and
// ports by name, and strings that say that they are an address.
func (d definition) addresses(t *testing.T) map[string]versions {
	found := map[string]versions{}
	common := map[string][]field{}
	for _, s := range d.CommonStructs {
		common[s.Name] = s.Fields
	}
	suspect := regexp.MustCompile(`(^|[a-z])(Host|Port|HostName|Hostname)s?$`)
	text := regexp.MustCompile(`Address|Endpoint|Url|Uri`)
	var walk func(at string, in versions, fields []field)
	walk = func(at string, in versions, fields []field) {
		for _, f := range fields {
			v := in.and(parseVersions(t, f.Versions))
			if v.first > v.last {
				continue
			}
			name := strings.TrimPrefix(at+"."+f.Name, ".")
			if suspect.MatchString(f.Name) || text.MatchString(f.Name) && strings.HasSuffix(f.Type, "string") {
				found[name] = v
			}
			nested := f.Fields
			if nested == nil {
				nested = common[strings.TrimPrefix(f.Type, "[]")]
			}
			walk(name, v, nested)
		}
	}
	walk("", versions{0, open}, d.Fields)
	return found
}

// walked are the structures of host and port that rewrite replaces, or keeps from clients
// by capping, with the versions that have them. The empty name is the response itself.
func walked() map[string]string {
	out := map[string]string{}
	for structure, v := range map[string]string{
		"Produce NodeEndpoints": "10+", "Fetch NodeEndpoints": "16+", "Metadata Brokers": "0+",
		"FindCoordinator ": "0-3", "FindCoordinator Coordinators": "4+",
		"DescribeCluster Brokers":  "0+",
		"ShareFetch NodeEndpoints": "0+", "ShareAcknowledge NodeEndpoints": "0+",
	} {
		api, at, _ := strings.Cut(structure, " ")
		for _, name := range []string{"Host", "Port"} {
			out[api+" "+strings.TrimPrefix(at+"."+name, ".")] = v
		}
	}
	return out
}

// notBrokers are address fields that are no broker's, with the reason.
func notBrokers() map[string]string {
	const controller = "a controller's listener: clients of brokers do not connect there, and its node id is no broker's (KIP-853)"
	const own, binding, streams = "the client's own address", "the host that an ACL is for", "where an application of Kafka Streams serves its own (application.server, KIP-1071)"
	return map[string]string{
		"DescribeQuorum Nodes.Listeners.Host":                              controller,
		"DescribeQuorum Nodes.Listeners.Port":                              controller,
		"Vote NodeEndpoints.Host":                                          controller,
		"Vote NodeEndpoints.Port":                                          controller,
		"BeginQuorumEpoch NodeEndpoints.Host":                              controller,
		"BeginQuorumEpoch NodeEndpoints.Port":                              controller,
		"EndQuorumEpoch NodeEndpoints.Host":                                controller,
		"EndQuorumEpoch NodeEndpoints.Port":                                controller,
		"FetchSnapshot NodeEndpoints.Host":                                 controller,
		"FetchSnapshot NodeEndpoints.Port":                                 controller,
		"UpdateRaftVoter CurrentLeader.Host":                               controller,
		"UpdateRaftVoter CurrentLeader.Port":                               controller,
		"DescribeGroups Groups.Members.ClientHost":                         own,
		"ConsumerGroupDescribe Groups.Members.ClientHost":                  own,
		"ShareGroupDescribe Groups.Members.ClientHost":                     own,
		"StreamsGroupDescribe Groups.Members.ClientHost":                   own,
		"DescribeAcls Resources.Acls.Host":                                 binding,
		"DeleteAcls FilterResults.MatchingAcls.Host":                       binding,
		"StreamsGroupDescribe Groups.Members.UserEndpoint.Host":            streams,
		"StreamsGroupDescribe Groups.Members.UserEndpoint.Port":            streams,
		"StreamsGroupHeartbeat PartitionsByUserEndpoint.UserEndpoint.Host": streams,
		"StreamsGroupHeartbeat PartitionsByUserEndpoint.UserEndpoint.Port": streams,
	}
}

// TestDefinitions holds the one list of responses with broker addresses (rewrite's
// AddressBearers) against Kafka's own message definitions, those of the newest Kafka that
// is served and those that the other tests run.
func TestDefinitions(t *testing.T) {
	ctx := realBrokers(t)
	newest, err := kafka.FetchClients(ctx, kafka.KafkaNewest, progress())
	if err != nil {
		report(t, "the definitions of Kafka %s are not to be had, those of %s stand in: %v", kafka.KafkaNewest, kafka.Kafka43, err)
	} else {
		t.Run(kafka.KafkaNewest, func(t *testing.T) { checkDefinitions(t, definitions(t, newest)) })
	}
	for _, version := range []string{kafka.Kafka43, kafka.Kafka41, kafka.Kafka39} {
		t.Run(version, func(t *testing.T) {
			jar, err := kafka.FetchClients(ctx, version, progress())
			must(t, err)
			checkDefinitions(t, definitions(t, jar))
		})
	}
}

func checkDefinitions(t *testing.T, all map[string]definition) {
	listed := map[int16]rewrite.AddressBearer{}
	for _, b := range rewrite.AddressBearers() {
		listed[b.Key] = b
	}
	found := map[int16]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d := all[name]
		if d.Type != "response" || parseVersions(t, d.ValidVersions).last < 0 {
			continue // data, headers, and what this Kafka no longer has
		}
		api := strings.TrimSuffix(d.Name, "Response")
		b, ok := listed[*d.APIKey]
		first := firstAddress(t, api, d, ok)
		if api == "Envelope" {
			first = 0 // another API's whole response is in it, as bytes
		}
		if first > parseVersions(t, d.ValidVersions).last {
			continue
		}
		if ok {
			found[b.Key] = true
			checkBearer(t, api, b, d, all[api+"Request"], first)
		}
	}
	for key, b := range listed {
		if !found[key] && !optional(b) {
			t.Errorf("%s is listed, and has no address in these definitions", rewrite.KeyName(key))
		}
	}
	var unserved []string
	for name, d := range all {
		if d.Type == "request" && parseVersions(t, d.ValidVersions).last >= 0 && !slices.Contains(d.Listeners, "broker") {
			unserved = append(unserved, strings.TrimSuffix(name, "Request"))
		}
	}
	slices.Sort(unserved)
	t.Logf("not served on a broker's listener: %s", strings.Join(unserved, ", "))
}

// optional are APIs that a Kafka may lack: share groups came in 3.9 as version 0 of
// early access, which 4.1 took away.
func optional(b rewrite.AddressBearer) bool {
	return strings.HasPrefix(rewrite.KeyName(b.Key), "Share")
}

// firstAddress returns the first version whose response has a broker's address, and
// complains of addresses that are not known. A response without one gets open+1.
func firstAddress(t *testing.T, api string, d definition, listed bool) int {
	first := open + 1
	known, foreign := walked(), notBrokers()
	for at, v := range d.addresses(t) {
		name := api + " " + at
		if foreign[name] != "" {
			continue
		}
		first = min(first, v.first)
		switch {
		case !listed:
			t.Errorf("%sResponse has %s in versions %s: rewrite's list does not name the API, and the address goes to clients", api, at, v)
		case known[name] != v.String():
			t.Errorf("%sResponse has %s in versions %s, known are versions %q: has rewrite's walk been told?", api, at, v, known[name])
		}
	}
	return first
}

// checkBearer compares one entry of the list with the definition.
func checkBearer(t *testing.T, api string, b rewrite.AddressBearer, d, request definition, first int) {
	valid := parseVersions(t, d.ValidVersions)
	if int(b.FirstWith) != first {
		t.Errorf("%s: the first address is in version %d, the list says %d", api, first, b.FirstWith)
	}
	if flexible := parseVersions(t, d.FlexibleVersions); int(b.FirstFlexible) != flexible.first {
		t.Errorf("%s: flexible from version %d, the list says %d", api, flexible.first, b.FirstFlexible)
	}
	served := slices.Contains(request.Listeners, "broker")
	switch {
	case b.Rewritten && valid.last > int(b.Known):
		report(t, "%s: this Kafka has version %d, known is %d: clients are capped there", api, valid.last, b.Known)
	case !b.Rewritten && served:
		t.Errorf("%s is capped at version %d and not rewritten, but a broker serves it to clients", api, b.Known)
	case b.Rewritten && !served:
		t.Errorf("%s is rewritten, but no broker serves it to clients", api)
	}
}

// The test above finds what it is to find.
func TestDefinitionsFindAddresses(t *testing.T) {
	var d definition
	must(t, json.Unmarshal([]byte(`{
		"apiKey": 500, "type": "response", "name": "NewResponse", "validVersions": "0-3", "flexibleVersions": "0+",
		"fields": [
			{"name": "Leader", "type": "NewLeader", "versions": "2+"},
			{"name": "Support", "type": "string", "versions": "0+"},
			{"name": "Port", "type": "int32", "versions": "0-1"},
			{"name": "Nodes", "type": "[]Node", "versions": "3+", "fields": [{"name": "HostName", "type": "string", "versions": "0+"}]},
			{"name": "RackEndpoint", "type": "string", "versions": "1"},
			{"name": "EndpointType", "type": "int8", "versions": "0+"}
		],
		"commonStructs": [{"name": "NewLeader", "versions": "0+", "fields": [{"name": "AdvertisedHost", "type": "string", "versions": "1+"}]}]
	}`), &d))
	got := fmt.Sprint(d.addresses(t))
	if want := "map[Leader.AdvertisedHost:2+ Nodes.HostName:3+ Port:0-1 RackEndpoint:1]"; got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}
