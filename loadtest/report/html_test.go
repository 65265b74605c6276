// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func pageOf(t *testing.T, r *Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// bare is the page as XML: without what stands in its scripts and styles, and with ends to
// the tags that have none in HTML.
func bare(page string) string {
	page = regexp.MustCompile(`(?s)(<(?:script|style)[^>]*>).*?(</(?:script|style)>)`).ReplaceAllString(page, "$1$2")
	return regexp.MustCompile(`<(br|meta)([^>]*)>`).ReplaceAllString(page, "<$1$2/>")
}

func TestPageIsWellFormed(t *testing.T) {
	hostile := handmade()
	hostile.Scenario.Name = `<script>alert("1")</script>`
	hostile.Targets[1].Name = `tier & "gate" </script>`
	for name, r := range map[string]*Run{"handmade": handmade(), "lifelike": lifelike(), "empty": {}, "hostile": hostile} {
		d := xml.NewDecoder(strings.NewReader(bare(pageOf(t, r))))
		d.Entity = xml.HTMLEntity
		tags := map[string]int{}
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if start, ok := token.(xml.StartElement); ok {
				tags[start.Name.Local]++
			}
		}
		if tags["script"] != 3 || tags["style"] != 1 || tags["h1"] != 1 {
			t.Errorf("%s: %v, want 3 scripts, a style and a heading", name, tags)
		}
	}
}

func TestPageLoadsNothing(t *testing.T) {
	page := pageOf(t, lifelike())
	banner := "/*! https://github.com/leeoniya/uPlot (v1.6.32) */"
	if strings.Count(page, banner) != 1 {
		t.Fatalf("uPlot is not there, or not that of uplot/README.md")
	}
	for _, loader := range []string{"://", " src=", " href=", "url(", "@import", "import(", "fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon"} {
		if at := strings.Index(strings.Replace(page, banner, "", 1), loader); at >= 0 {
			t.Errorf("the page has %s: %.80q", loader, page[at:])
		}
	}
	// The browser is told the same.
	if !strings.Contains(page, `content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"`) {
		t.Error("the page does not forbid loading")
	}
}

func TestLibraryIsTheOneNamed(t *testing.T) {
	readme, err := os.ReadFile("uplot/README.md")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`\(v([0-9.]+)\)`).FindStringSubmatch(library[:100])
	if version == nil || !bytes.Contains(readme, []byte("uPlot "+version[1]+"\n")) {
		t.Errorf("uplot/README.md does not name version %v", version)
	}
}

func TestPageShowsTheTables(t *testing.T) {
	page := pageOf(t, handmade())
	for _, want := range []string{
		"<h1>Load test: handmade</h1>", `<div class="verdict passed">`, "<h2>throughput</h2>", "<li>produce-1k: 4 producers of records of 1 KiB. Latency is",
		`<td class="">produce-1k</td><td class="">tiergate</td><td class="number">190</td><td class="number">190,000</td><td class="number">1.10</td>`,
		"<pre>name: handmade\nrounds: 3 # &lt;/script&gt;&lt;b&gt;\n</pre>", `<div class="plots" data-plots=" usage"></div>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	order := regexp.MustCompile(`(?:<h2>|<summary>|data-plots=")([^<"]+)`).FindAllStringSubmatch(page, -1)
	var titles []string
	for _, match := range order {
		titles = append(titles, match[1])
	}
	want := []string{
		"Bounds", "throughput", "produce-1k", "produce-1k", "look-ups", "look-ups", "CPU and memory", " usage",
		"Metrics of the proxies", " metrics", "Followers", "Verification", "Faults", "Targets", "Scenario",
	}
	if !slices.Equal(titles, want) {
		t.Errorf("headings and plots: %q, want %q", titles, want)
	}
}

// drawn is what the script reads.
type drawn struct {
	Groups []struct {
		Name  string
		Plots []struct {
			Title, Unit, Kind string
			Series            []struct {
				Label  string
				Colour int
				Dashed bool
				X, Y   []*float64
			}
		}
	}
	Bands []band
}

func plotsOf(t *testing.T, page string) drawn {
	t.Helper()
	_, text, _ := strings.Cut(page, `id="plots">`)
	text, _, _ = strings.Cut(text, "</script>")
	var d drawn
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("the plots are no JSON: %v: %.200s", err, text)
	}
	return d
}

func numbers(values []*float64) string {
	text := ""
	for _, v := range values {
		if v == nil {
			text += "- "
		} else {
			text += fmt.Sprintf("%g ", *v)
		}
	}
	return strings.TrimSpace(text)
}

func TestPlots(t *testing.T) {
	r := handmade()
	// A restart in the last turn: the counter begins anew.
	counter := &r.Target("tiergate").Turns[2].Metrics[0]
	counter.Points = []MetricPoint{{0, 10}, {1, 5}, {2, 25}}
	d := plotsOf(t, pageOf(t, r))
	var lines []string
	for _, g := range d.Groups {
		for _, p := range g.Plots {
			for _, line := range p.Series {
				lines = append(lines, fmt.Sprintf("%s / %s / %s / %s %d: %s | %s", g.Name, p.Title, p.Unit, line.Label, line.Colour, numbers(line.X), numbers(line.Y)))
			}
		}
	}
	golden(t, "plots.txt", strings.Join(lines, "\n")+"\n")
	if want := []band{{6, 7, "latency"}, {12, 12, "cut"}}; !slices.Equal(d.Bands, want) {
		t.Errorf("bands %v, want %v", d.Bands, want)
	}
}

// The names of a user can not end the script.
func TestPlotsOfHostileNames(t *testing.T) {
	r := handmade()
	r.Targets[1].Name = `</script><script>alert("1")`
	for _, line := range plotsOf(t, pageOf(t, r)).Groups[0].Plots[0].Series {
		if line.Label == r.Targets[1].Name {
			return
		}
	}
	t.Error("the target is not there")
}
