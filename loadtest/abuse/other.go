// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package abuse

import (
	"context"
	"errors"
)

// Run needs Linux: memory and CPU time come from /proc.
func Run(context.Context, Options) (*Report, error) {
	return nil, errors.New("the abuse table is measured on Linux only: it reads /proc")
}
