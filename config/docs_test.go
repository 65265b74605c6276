// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"tiergate/internal/strictyaml"
)

// defaultOf returns the default of a key as a file would have it, "none" without one.
func defaultOf(t *testing.T, key string) string {
	t.Helper()
	v := reflect.ValueOf(Defaults())
	inListener, ok := strings.CutPrefix(key, "listeners[].")
	if ok {
		listener := &Listener{}
		listener.setDefaults()
		key, v = inListener, reflect.ValueOf(listener).Elem()
	}
	if inCluster, ok := strings.CutPrefix(key, "clusters[]."); ok {
		key, v = inCluster, reflect.ValueOf(NamedCluster{})
	}
	if key == "first_node_id" {
		return "`0`"
	}
	for name := range strings.SplitSeq(key, ".") {
		if v.Kind() == reflect.Pointer {
			v = reflect.New(v.Type().Elem()).Elem()
			setDefaults(v)
		}
		for _, f := range strictyaml.FieldsOf(v.Type()) {
			if f.Key == name {
				v = v.FieldByIndex(f.Index)
				break
			}
		}
	}
	if v.IsZero() && v.Kind() != reflect.Bool {
		return "none"
	}
	return "`" + fmt.Sprint(v.Interface()) + "`"
}

// Every key has one row in docs/configuration.md, with its default and a reason, and no
// row is of a key that is no more.
func TestDocumentationHasEveryKey(t *testing.T) {
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	var order []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		key := strings.Trim(strings.TrimSpace(cells[0]), "`")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if rows[key] != nil {
			t.Errorf("%s has two rows", key)
		}
		rows[key] = cells
		order = append(order, key)
	}
	if got, want := strings.Join(order, "\n"), strings.Join(Keys(), "\n"); got != want {
		t.Errorf("rows:\n%s\nwant those of the types:\n%s", got, want)
	}
	for _, key := range Keys() {
		cells := rows[key]
		if len(cells) != 4 {
			t.Errorf("%s: row %q has %d cells, want key, form, default, reason", key, cells, len(cells))
			continue
		}
		if got, want := strings.TrimSpace(cells[2]), defaultOf(t, key); got != want && (want != "none" || !strings.HasPrefix(got, "none")) {
			t.Errorf("%s: default %q, want %q", key, got, want)
		}
		if len(strings.TrimSpace(cells[3])) < 20 {
			t.Errorf("%s: no reason: %q", key, cells[3])
		}
	}
}

// The security page has every limit once, with its default.
func TestSecurityPageHasEveryLimit(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `limits.") {
			got = append(got, strings.TrimPrefix(cells[0], "| ")+" "+cells[1])
		}
	}
	for _, key := range Keys() {
		if strings.HasPrefix(key, "limits.") {
			want = append(want, "`"+key+"` "+defaultOf(t, key))
		}
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("docs/security.md has\n%s\nwant\n%s", g, w)
	}
}

const examplePath = "../docs/tiergate.example.yaml"

func TestExampleFile(t *testing.T) {
	got, err := Load(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.Upstream.BootstrapServers = []HostPort{{"kafka-0", 9092}, {"kafka-1", 9092}, {"kafka-2", 9092}}
	want.Listeners = []Listener{
		{
			Name: "clients", Bootstrap: HostPort{"0.0.0.0", 9192}, Nodes: PortRange{"0.0.0.0", 9200, 9209},
			AdvertisedHost: "kafka.example.com", UnmappedNodes: UnmappedReject, ProxyProtocol: ProxyProtocolOff,
		},
		{
			Name: "sidecar", UnmappedNodes: UnmappedReject, ProxyProtocol: ProxyProtocolOff,
			Direct: Routes{{HostPort{"10.0.0.10", 9092}, HostPort{"10.0.0.10", 19092}, "10.0.0.10:9092"}},
		},
	}
	want.Tiering.TieredTopics = []TopicName{"orders", "payments"}
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got  %+v\nwant %+v", got, &want)
	}
}

// What the example has commented out is every other key at its default: with the
// comments taken away the file means the same. The keys of the blocks tls and sasl, which
// have no default, stand three spaces behind the # and stay where they are.
func TestExampleFileShowsDefaults(t *testing.T) {
	text, err := os.ReadFile(examplePath)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, k := range Keys() {
		keys[k[strings.LastIndex(k, ".")+1:]] = true
	}
	seen := map[string]bool{}
	var full strings.Builder
	for line := range strings.Lines(string(text)) {
		bare := strings.TrimLeft(line, "- ")
		if inBlock, ok := strings.CutPrefix(bare, "#   "); ok {
			key, _, _ := strings.Cut(inBlock, ":")
			seen[key] = seen[key] || keys[key]
		}
		key, _, _ := strings.Cut(strings.TrimPrefix(bare, "# "), ":")
		if rest, isComment := strings.CutPrefix(bare, "# "); isComment && keys[key] {
			line = line[:len(line)-len(bare)] + rest
		}
		seen[key] = seen[key] || keys[key]
		full.WriteString(line)
	}
	for key := range keys {
		if !seen[key] {
			t.Errorf("%s is not in the example", key)
		}
	}
	plain, err := Parse("example", text)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("example, uncommented", []byte(full.String()))
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, full.String())
	}
	if !reflect.DeepEqual(got, plain) {
		t.Errorf("uncommented: %+v\nas it is:    %+v", got, plain)
	}
}
