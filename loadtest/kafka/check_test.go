// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"strings"
	"testing"
)

func TestCheckSaysWhatIsMissingInOneSentence(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv(CacheEnv, t.TempDir())
	err := Check(t.Context(), Kafka41)
	if err == nil {
		t.Fatal("no Java and no Maven in an empty PATH, and Check is content")
	}
	const want = "tests with real Kafka brokers need Java 17 or newer and Maven, and this machine lacks " +
		"Java 17 or newer (no java in PATH) and Maven (no mvn in PATH): " +
		"install them (on Debian or Ubuntu: apt-get install openjdk-17-jdk-headless maven)"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	if _, err := Launch(t.Context(), Options{Version: Kafka41}); err == nil || err.Error() != want {
		t.Errorf("Launch: got %v\nwant %s", err, want)
	}
}

func TestJavaMajor(t *testing.T) {
	f := func(out string, want int, wantOK bool) {
		t.Helper()
		if got, ok := javaMajor([]byte(out)); got != want || ok != wantOK {
			t.Errorf("%q: got %d, %v; want %d, %v", out, got, ok, want, wantOK)
		}
	}
	f("openjdk version \"17.0.15\" 2025-04-15\n", 17, true)
	f("openjdk version \"21\" 2023-09-19\n", 21, true)
	f("java version \"1.8.0_402\"\n", 8, true)
	f("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"25-ea\" 2025-09-16\n", 25, true)
	f("zsh: command not found: java\n", 0, false)
}

func TestFetchRefusesWhatIsNoVersion(t *testing.T) {
	for _, version := range []string{"", "4.1", "../../etc", "4.1.1\n", "latest"} {
		if _, err := Fetch(t.Context(), version, nil); err == nil {
			t.Errorf("Fetch(%q) gave no error", version)
		}
	}
}
