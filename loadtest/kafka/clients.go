// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// KafkaNewest is the newest Kafka whose message definitions are read. There are no test
// jars of it, which a broker with LocalTieredStorage needs, so it is not run.
const KafkaNewest = "4.4.0"

// FetchClients returns the path of the kafka-clients jar of a version, which holds the
// message definitions in common/message. It comes from what Fetch cached, or is fetched by
// itself with Maven and kept in the same cache.
func FetchClients(ctx context.Context, version string, log *slog.Logger) (string, error) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(version) {
		return "", fmt.Errorf("%q is no Kafka version of the form 4.1.1", version)
	}
	name := "kafka-clients-" + version + ".jar"
	if j, err := cached(version); err == nil {
		return filepath.Join(j.Dir, "lib", name), nil
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "clients")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cache of Kafka jars: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "clients.lock"))
	if err != nil {
		return "", fmt.Errorf("cache of Kafka jars: %w", err)
	}
	defer unlock()
	jar := filepath.Join(dir, name)
	if _, err := os.Stat(jar); err == nil {
		return jar, nil
	}
	return jar, fetchClients(ctx, jar, version, log)
}

// fetchClients runs Maven. The caller holds the lock.
func fetchClients(ctx context.Context, jar, version string, log *slog.Logger) error {
	if err := Check(ctx); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(jar), "."+version+".")
	if err != nil {
		return fmt.Errorf("cache of Kafka jars: %w", err)
	}
	defer os.RemoveAll(tmp)
	log.Info("fetching the clients jar of Kafka with Maven, once", "version", version, "into", jar)
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy",
		"-Dartifact=org.apache.kafka:kafka-clients:"+version, "-DoutputDirectory="+tmp)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("clients jar of Kafka %s: mvn dependency:copy: %w\n%s", version, err, tail(out, 4096))
	}
	if err := os.Rename(filepath.Join(tmp, filepath.Base(jar)), jar); err != nil {
		return fmt.Errorf("clients jar of Kafka %s: Maven succeeded, but %w", version, err)
	}
	return nil
}
