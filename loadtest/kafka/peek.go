// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // Peek.java
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed Peek.java
var peekSource []byte

// TieredInMemory is what a broker's memory says is uploaded of a partition.
type TieredInMemory struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	// Log is UnifiedLog.highestOffsetInRemoteStorage, what -5 answers where there is one.
	Log int64
	// Task is the copy task's copiedOffsetOption; nil when there is no task, or it has not
	// looked for the highest offset in the remote log metadata yet.
	Task *int64
}

// PeekJVM returns the option with which a node's Java can be looked into (Options.JVM).
func PeekJVM(port int) string {
	return "-agentlib:jdwp=transport=dt_socket,server=y,suspend=n,address=" + Loopback(port)
}

// Peek reads, over the Java debug interface, what a broker of Kafka 3.6 to 3.8 has in
// memory: it has no request that tells. The broker must run with PeekJVM(port). It needs a
// JDK, and takes about two seconds.
func Peek(ctx context.Context, port int) ([]TieredInMemory, error) {
	cmd, remove, err := peekCommand(ctx, strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	defer remove()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("peek into the broker (a JDK is needed): %w\n%s%s", err, stdout.String(), stderr.String())
	}
	return parsePeek(stdout.String())
}

// peekCommand returns the command that runs Peek.java. remove removes its files.
func peekCommand(ctx context.Context, args ...string) (cmd *exec.Cmd, remove func(), err error) {
	dir, err := os.MkdirTemp("", "tiergate-peek-")
	if err != nil {
		return nil, nil, err
	}
	source := filepath.Join(dir, "Peek.java")
	if err := os.WriteFile(source, peekSource, 0o644); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	args = append([]string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-modules", "jdk.jdi", source}, args...)
	return exec.CommandContext(ctx, "java", args...), func() { os.RemoveAll(dir) }, nil
}

// HeldCopies is a broker whose copies to the remote storage hang: each copy has announced its
// segment in the remote log metadata, and writes nothing.
type HeldCopies struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
	remove func()
}

// HoldCopies has every copy of a broker hang from now on, until Release or until ctx ends. The
// broker must run with PeekJVM(port); Peek cannot be used meanwhile, HeldCopies.Peek can.
func HoldCopies(ctx context.Context, port int) (*HeldCopies, error) {
	h := &HeldCopies{}
	var err error
	if h.cmd, h.remove, err = peekCommand(ctx, strconv.Itoa(port), "hold"); err != nil {
		return nil, err
	}
	h.cmd.Stderr = &h.stderr
	out, outErr := h.cmd.StdoutPipe()
	in, inErr := h.cmd.StdinPipe()
	err = errors.Join(outErr, inErr)
	if err == nil {
		h.in, h.out = in, bufio.NewReader(out)
		err = h.cmd.Start()
	}
	if err != nil {
		h.remove()
		return nil, err
	}
	if err := h.await("ready"); err != nil {
		h.Release()
		return nil, fmt.Errorf("hold copies (a JDK is needed): %w", err)
	}
	return h, nil
}

// await reads the next line.
func (h *HeldCopies) await(want string) error {
	line, err := h.out.ReadString('\n')
	if err == nil && strings.TrimSpace(line) != want {
		err = fmt.Errorf("unexpected line %q", line)
	}
	return err
}

// AwaitCopy waits until a copy hangs.
func (h *HeldCopies) AwaitCopy() error { return h.await("held") }

// Peek is the function Peek, after AwaitCopy.
func (h *HeldCopies) Peek() ([]TieredInMemory, error) {
	if _, err := io.WriteString(h.in, "peek\n"); err != nil {
		return nil, err
	}
	var all strings.Builder
	for line := ""; line != "end\n"; {
		var err error
		if line, err = h.out.ReadString('\n'); err != nil {
			return nil, fmt.Errorf("peek: %w after %q", err, all.String())
		}
		all.WriteString(line)
	}
	return parsePeek(all.String())
}

// Release lets the copies go on, if the broker still runs. It returns what the program wrote
// to its standard error.
func (h *HeldCopies) Release() string {
	_ = h.cmd.Process.Kill() // the broker resumes its threads when the connection ends
	_ = h.cmd.Wait()
	h.remove()
	return h.stderr.String()
}

// parsePeek reads what Peek.java prints.
func parsePeek(out string) ([]TieredInMemory, error) {
	type key struct {
		id        [16]byte
		partition int32
	}
	var all []TieredInMemory
	at := map[key]int{}
	complete := false
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		complete = len(words) == 1 && words[0] == "end"
		if complete {
			break
		}
		task := words[0] == "task"
		if task {
			words = words[1:]
		}
		if len(words) != 4 || len(words[2]) != hex.EncodedLen(len(TieredInMemory{}.TopicID)) {
			return nil, fmt.Errorf("peek: line %q", line)
		}
		t := TieredInMemory{Topic: words[0], Log: -1}
		partition, err := strconv.ParseInt(words[1], 10, 32)
		if _, idErr := hex.Decode(t.TopicID[:], []byte(words[2])); err != nil || idErr != nil {
			return nil, fmt.Errorf("peek: line %q", line)
		}
		t.Partition = int32(partition)
		i, seen := at[key{t.TopicID, t.Partition}]
		if !seen {
			i = len(all)
			at[key{t.TopicID, t.Partition}] = i
			all = append(all, t)
		}
		offset, err := strconv.ParseInt(words[3], 10, 64)
		switch {
		case task && words[3] == "none":
		case err != nil:
			return nil, fmt.Errorf("peek: line %q", line)
		case task:
			all[i].Task = &offset
		default:
			all[i].Log = offset
		}
	}
	if !complete {
		return nil, fmt.Errorf("peek: the output ends early: %q", out)
	}
	return all, nil
}
