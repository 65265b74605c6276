// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Tool is one run of a Java command line tool.
type Tool struct {
	// Class is the main class, for example org.apache.kafka.tools.GetOffsetShell.
	Class string
	// Args are its arguments.
	Args []string
	// JVM are more options of its Java.
	JVM []string
	// ClassPath holds more classes, such as a test's own.
	ClassPath string
	// Env are more environment variables, as name=value.
	Env []string
	// Stdin is what it reads; nil for nothing.
	Stdin io.Reader
}

// Result is how a tool ended.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
}

// String shows everything, for a failing test.
func (r Result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s\n--- stderr\n%s", r.ExitCode, r.Stdout, r.Stderr)
}

// Command returns a tool's command, not started, which is to run in dir: the logging of the
// test jars creates files where a tool runs.
func (j Jars) Command(tool Tool, dir string) *exec.Cmd {
	args := append([]string{
		"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
		"-Djava.net.preferIPv4Stack=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", strings.Trim(tool.ClassPath+string(os.PathListSeparator)+j.ClassPath(), string(os.PathListSeparator)),
	}, tool.JVM...)
	cmd := exec.Command("java", append(append(args, tool.Class), tool.Args...)...)
	cmd.Dir, cmd.Stdin = dir, tool.Stdin
	cmd.Env = append(os.Environ(), tool.Env...)
	return cmd
}

// Run runs a tool with the jars of this version and waits for its end. The error is nil
// when the tool ran and ended by itself, whatever its exit code.
func (j Jars) Run(ctx context.Context, tool Tool) (Result, error) {
	dir, err := os.MkdirTemp("", "tiergate-tool-")
	if err != nil {
		return Result{}, fmt.Errorf("%s of Kafka %s: %w", tool.Class, j.Version, err)
	}
	defer os.RemoveAll(dir)
	cmd := j.Command(tool, dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	p, err := StartProcess(cmd)
	if err != nil {
		return Result{}, fmt.Errorf("%s of Kafka %s: %w", tool.Class, j.Version, err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
	}
	r := Result{Stdout: stdout.String(), Stderr: stderr.String()}
	code, ok := exitCode(p.Err())
	if !ok || ctx.Err() != nil {
		return r, fmt.Errorf("%s of Kafka %s was cut short: %w\n%v", tool.Class, j.Version, errors.Join(p.Err(), ctx.Err()), r)
	}
	r.ExitCode = code
	return r, nil
}
