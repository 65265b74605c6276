// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteJSON writes a run. Format is set to the current one.
func WriteJSON(w io.Writer, r *Run) error {
	written := *r
	written.Format = Format
	text, err := json.MarshalIndent(&written, "", " ")
	if err != nil {
		return fmt.Errorf("write run: %w", err)
	}
	if _, err = w.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write run: %w", err)
	}
	return nil
}

// ReadJSON reads what WriteJSON wrote. Fields that it does not know are skipped.
func ReadJSON(from io.Reader) (*Run, error) {
	var r Run
	if err := json.NewDecoder(from).Decode(&r); err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	if r.Format < 1 || r.Format > Format {
		return nil, fmt.Errorf("read run: format %d, this load test reads up to %d", r.Format, Format)
	}
	return &r, nil
}

// ReadFile reads the run in a file.
func ReadFile(name string) (*Run, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := ReadJSON(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// WriteFile writes a file with what write writes. A file of that name is replaced when the
// new one is whole, so that an end in the middle leaves the old one.
func WriteFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = write(f); err != nil {
		_ = f.Close()
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		_ = f.Close()
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
