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
	"time"
)

// miniKDC is the version of Hadoop whose MiniKdc is run: a Kerberos server (Apache Kerby)
// of 5 MB that Kafka's own tests used for years.
const miniKDC = "3.4.1"

// Realm of every KDC.
const Realm = "TIERGATE.TEST"

// KDC is a running Kerberos server with the principals of a test.
type KDC struct {
	process *Process
	dir     string
}

// StartKDC launches a KDC on loopback with principals, such as kafka/localhost, and keeps
// its files in dir. Its jars come from the cache, or with Maven, once. The caller must
// Close it.
func StartKDC(ctx context.Context, dir string, log *slog.Logger, principals ...string) (*KDC, error) {
	lib, err := fetchKDC(ctx, log)
	if err != nil {
		return nil, err
	}
	k := &KDC{dir: dir}
	return k, k.start(ctx, lib, principals)
}

// Close kills the KDC.
func (k *KDC) Close() { k.process.Kill() }

func (k *KDC) start(ctx context.Context, lib string, principals []string) error {
	config := filepath.Join(k.dir, "kdc.properties")
	text := "org.name=TIERGATE\norg.domain=TEST\nkdc.bind.address=127.0.0.1\nkdc.port=0\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(k.dir, "kdc.log"))
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command("java", append([]string{
		"-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true",
		"-cp", filepath.Join(lib, "*"), "org.apache.hadoop.minikdc.MiniKdc", k.dir, config, k.Keytab(),
	}, principals...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = k.dir, output, output
	if k.process, err = StartProcess(cmd); err != nil {
		return fmt.Errorf("start the KDC: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = Poll(ctx, "the KDC", func(context.Context) error {
		log, err := os.ReadFile(output.Name())
		if err == nil && !bytes.Contains(log, []byte("Do <CTRL-C>")) { // its last line
			err = errors.New("it has not said that it runs")
		}
		return err
	})
	if err != nil {
		k.process.Kill()
		return fmt.Errorf("%w\n%s", err, logTail(output.Name()))
	}
	return nil
}

// Keytab has the keys of all principals.
func (k *KDC) Keytab() string { return filepath.Join(k.dir, "keytab") }

// JVM are the options of a Java program that is to find the KDC.
func (k *KDC) JVM() []string {
	return []string{"-Djava.security.krb5.conf=" + filepath.Join(k.dir, "krb5.conf")}
}

// JAAS is the value of sasl.jaas.config for a principal of the keytab, at either end.
func (k *KDC) JAAS(principal string) string {
	return fmt.Sprintf("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true doNotPrompt=true keyTab=%q principal=%q;",
		k.Keytab(), principal+"@"+Realm)
}

// GSSAPIProperties add GSSAPI to a listener that has SASLProperties, and need Options.JVM.
func (k *KDC) GSSAPIProperties(listener, principal string) map[string]string {
	return of(listener, map[string]string{
		"sasl.enabled.mechanisms":    "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER,GSSAPI",
		"gssapi.sasl.jaas.config":    k.JAAS(principal),
		"sasl.kerberos.service.name": "kafka",
	})
}

// fetchKDC returns the folder with the KDC's jars.
func fetchKDC(ctx context.Context, log *slog.Logger) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	lib := filepath.Join(cache, "minikdc-"+miniKDC)
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("cache of the KDC's jars: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "minikdc.lock"))
	if err != nil {
		return "", fmt.Errorf("cache of the KDC's jars: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(lib); err == nil {
		return lib, nil // another process fetched it while this one waited
	}
	if err := Check(ctx); err != nil {
		return "", err
	}
	log.Info("fetching the jars of a KDC with Maven, once", "version", miniKDC, "into", lib)
	return lib, copyKDC(ctx, cache, lib)
}

// copyKDC runs Maven. The caller holds the lock.
func copyKDC(ctx context.Context, cache, lib string) error {
	tmp, err := os.MkdirTemp(cache, ".minikdc.")
	if err != nil {
		return fmt.Errorf("cache of the KDC's jars: %w", err)
	}
	defer os.RemoveAll(tmp)
	pom := `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tiergate</groupId><artifactId>kdc-jars</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-minikdc</artifactId><version>` + miniKDC + `</version></dependency></dependencies>
</project>
`
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), []byte(pom), 0o644); err != nil {
		return fmt.Errorf("cache of the KDC's jars: %w", err)
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", "pom.xml", "dependency:copy-dependencies", "-DoutputDirectory=lib")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("jars of a KDC: mvn dependency:copy-dependencies: %w\n%s", err, tail(out, 4096))
	}
	if err := os.Rename(filepath.Join(tmp, "lib"), lib); err != nil {
		return fmt.Errorf("jars of a KDC: Maven succeeded, but %w", err)
	}
	return nil
}
