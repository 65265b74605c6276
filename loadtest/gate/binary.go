// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"tiergate/loadtest/kafka"
)

// Binary returns the path of tiergate: where the working directory is in its repository
// it is built into folder, else it is the program beside this one, or the one in PATH.
// flags are those of go build, such as -race.
func Binary(ctx context.Context, folder string, flags ...string) (string, error) {
	if root, err := kafka.Repository(); err == nil {
		path := filepath.Join(folder, "tiergate")
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", path}, flags...), "./cmd/tiergate")...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build ./cmd/tiergate: %w\n%s", err, out)
		}
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "tiergate")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath("tiergate")
	if err != nil {
		return "", errors.New("tiergate is not beside this program, not in PATH, and this is not its repository: " +
			"install it, or name it (--tiergate FILE, or the key binary of a scenario's target)")
	}
	return path, nil
}
