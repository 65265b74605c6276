// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The versions that the tests run. Older ones lack the -6 timestamp: 3.6 to 3.8 end
// ListOffsets at version 8, where -5 is missing too, 3.9 at 9, 4.0 and 4.1 at 10. Kafka43
// is native and the oracle.
const (
	Kafka36 = "3.6.2"
	Kafka37 = "3.7.2"
	Kafka38 = "3.8.1"
	Kafka39 = "3.9.1"
	Kafka41 = "4.1.1"
	Kafka43 = "4.3.0"
)

// withoutLatestTiered says that the brokers have no -5 (KIP-1005, Kafka 3.9).
func (c *Cluster) withoutLatestTiered() bool {
	return slices.Contains([]string{Kafka36, Kafka37, Kafka38}, c.jars.Version)
}

// CacheEnv names the environment variable that moves the cache of jars elsewhere.
const CacheEnv = "TIERGATE_KAFKA_CACHE"

// Jars is a folder with everything that one Kafka version needs to run.
type Jars struct {
	// Version of Kafka.
	Version string
	// Dir holds lib/*.jar, and the pom.xml that they came from.
	Dir string
}

// ClassPath is a Java class path with a wildcard, which java itself expands.
func (j Jars) ClassPath() string { return filepath.Join(j.Dir, "lib", "*") }

// Fetch returns the jars of a version from the cache. What is missing is fetched with
// Maven first, into a temporary folder that is renamed when it is complete, under a
// lock that parallel test processes share. log gets the progress.
func Fetch(ctx context.Context, version string, log *slog.Logger) (Jars, error) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(version) {
		return Jars{}, fmt.Errorf("version %q of Kafka is not of the form 4.1.1", version)
	}
	if j, err := cached(version); err == nil {
		return j, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return Jars{}, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Jars{}, fmt.Errorf("cache of Kafka jars: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, version+".lock"))
	if err != nil {
		return Jars{}, fmt.Errorf("cache of Kafka jars: %w", err)
	}
	defer unlock()
	if j, err := cached(version); err == nil {
		return j, nil // another process fetched it while this one waited
	}
	return fetch(ctx, cache, version, log)
}

// fetch runs Maven. The caller holds the lock of the version.
func fetch(ctx context.Context, cache, version string, log *slog.Logger) (Jars, error) {
	if err := Check(ctx, version); err != nil {
		return Jars{}, err
	}
	began := time.Now()
	log.Info("fetching the jars of Kafka with Maven, once", "version", version, "into", filepath.Join(cache, version))
	tmp, err := os.MkdirTemp(cache, "."+version+".")
	if err != nil {
		return Jars{}, fmt.Errorf("cache of Kafka jars: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return Jars{}, fmt.Errorf("cache of Kafka jars: %w", err)
	}
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pom(version), 0o644); err != nil {
		return Jars{}, fmt.Errorf("cache of Kafka jars: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", "pom.xml", "dependency:copy-dependencies",
		"-DoutputDirectory=lib", "-DexcludeArtifactIds=slf4j-reload4j")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return Jars{}, fmt.Errorf("jars of Kafka %s: mvn dependency:copy-dependencies: %w\n%s", version, err, tail(out, 4096))
	}
	final := filepath.Join(cache, version)
	if err := os.RemoveAll(final); err != nil {
		return Jars{}, fmt.Errorf("cache of Kafka jars: %w", err)
	}
	if err := os.Rename(tmp, final); err != nil {
		return Jars{}, fmt.Errorf("cache of Kafka jars: %w", err)
	}
	j, err := cached(version)
	if err != nil {
		return Jars{}, fmt.Errorf("jars of Kafka %s: Maven succeeded, but %w", version, err)
	}
	log.Info("fetched the jars of Kafka", "version", version, "took", time.Since(began).Round(time.Second/10).String())
	return j, nil
}

// cached returns the jars of a version if the cache holds them, made from today's pom.
func cached(version string) (Jars, error) {
	cache, err := cacheDir()
	if err != nil {
		return Jars{}, err
	}
	dir := filepath.Join(cache, version)
	have, err := os.ReadFile(filepath.Join(dir, "pom.xml"))
	if err != nil {
		return Jars{}, err
	}
	if !bytes.Equal(have, pom(version)) {
		return Jars{}, fmt.Errorf("%s was made from another pom", dir)
	}
	for _, jar := range []string{"kafka_2.13-%s.jar", "kafka-tools-%s.jar", "kafka-storage-%s-test.jar", "kafka-clients-%s-test.jar"} {
		if _, err := os.Stat(filepath.Join(dir, "lib", fmt.Sprintf(jar, version))); err != nil {
			return Jars{}, err
		}
	}
	return Jars{Version: version, Dir: dir}, nil
}

// cacheDir returns the folder of all versions: CacheEnv, or .cache/kafka of the
// repository that the working directory is in (go test runs in the package's folder).
func cacheDir() (string, error) {
	if dir := os.Getenv(CacheEnv); dir != "" {
		return filepath.Abs(dir)
	}
	root, err := Repository()
	if err != nil {
		return "", fmt.Errorf("%w: set %s to a folder for the jars of Kafka", err, CacheEnv)
	}
	return filepath.Join(root, ".cache", "kafka"), nil
}

// Repository returns the root of tiergate's repository that the working directory is in.
func Repository() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module tiergate\n")) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the tiergate repository", wd)
		}
	}
}

// pom lists what a broker with LocalTieredStorage and the command line tools need.
// LocalTieredStorage is in the test jar of kafka-storage, and needs that of
// kafka-clients. slf4j-simple prints the brokers' log: Kafka 4 names no backend of
// slf4j 1.7, and that of 3.9 (reload4j) is left out so that there is one.
func pom(version string) []byte {
	var deps strings.Builder
	add := func(group, artifact, version, classifier string) {
		fmt.Fprintf(&deps, "    <dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version>", group, artifact, version)
		if classifier != "" {
			fmt.Fprintf(&deps, "<classifier>%s</classifier>", classifier)
		}
		deps.WriteString("</dependency>\n")
	}
	add("org.apache.kafka", "kafka_2.13", version, "")
	add("org.apache.kafka", "kafka-tools", version, "")
	add("org.apache.kafka", "kafka-storage", version, "")
	add("org.apache.kafka", "kafka-storage", version, "test")
	add("org.apache.kafka", "kafka-clients", version, "test")
	add("org.slf4j", "slf4j-simple", "1.7.36", "")
	return []byte(`<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tiergate</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
` + deps.String() + `  </dependencies>
</project>
`)
}

// tail returns at most n last bytes, from the start of a line where there is one.
func tail(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	b = b[len(b)-n:]
	if i := bytes.IndexByte(b, '\n'); i >= 0 && i+1 < len(b) {
		b = b[i+1:]
	}
	return b
}
