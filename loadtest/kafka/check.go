// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// minJava is the oldest Java that runs the brokers of Kafka 4 (KIP-1013).
const minJava = 17

// Check returns nil when this machine can run brokers of the given versions: Java 17
// or newer and, for versions that are not in the cache yet, Maven. Otherwise the error
// is one sentence that says what is missing and what to install.
func Check(ctx context.Context, versions ...string) error {
	var missing []string
	if fault := checkJava(ctx); fault != "" {
		missing = append(missing, fault)
	}
	if needsMaven(versions) {
		if _, err := exec.LookPath("mvn"); err != nil {
			missing = append(missing, "Maven (no mvn in PATH)")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("tests with real Kafka brokers need Java %d or newer and Maven, and this machine lacks %s: "+
		"install them (on Debian or Ubuntu: apt-get install openjdk-17-jdk-headless maven)",
		minJava, strings.Join(missing, " and "))
}

// needsMaven says whether a version is missing in the cache. Without versions Maven
// is asked for in any case.
func needsMaven(versions []string) bool {
	for _, v := range versions {
		if _, err := cached(v); err != nil {
			return true
		}
	}
	return len(versions) == 0
}

// checkJava returns what is wrong with this machine's Java, or nothing.
func checkJava(ctx context.Context) string {
	path, err := exec.LookPath("java")
	if err != nil {
		return fmt.Sprintf("Java %d or newer (no java in PATH)", minJava)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("a working Java (java -version fails: %v)", err)
	}
	major, ok := javaMajor(out)
	if !ok {
		line, _, _ := bytes.Cut(out, []byte("\n"))
		return fmt.Sprintf("Java %d or newer (java -version says %q)", minJava, line)
	}
	if major < minJava {
		return fmt.Sprintf("Java %d or newer (the java in PATH is %d)", minJava, major)
	}
	return ""
}

var javaVersionLine = regexp.MustCompile(`version "(\d+)(?:\.(\d+))?`)

// javaMajor reads the output of java -version: "17.0.15" is 17, and up to Java 8 the
// major version stood second, "1.8.0_402" (JEP 223).
func javaMajor(out []byte) (major int, ok bool) {
	m := javaVersionLine.FindSubmatch(out)
	if m == nil {
		return 0, false
	}
	major, _ = strconv.Atoi(string(m[1]))
	if major == 1 && len(m[2]) > 0 {
		major, _ = strconv.Atoi(string(m[2]))
	}
	return major, true
}
