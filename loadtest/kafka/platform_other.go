// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package kafka

import (
	"context"
	"errors"
	"syscall"
)

var errNotUnix = errors.New("real Kafka brokers are run for tests on Unix systems only")

func lockFile(context.Context, string) (func(), error) { return nil, errNotUnix }

func reservePorts([]int) bool { return true }

func signalGroup(int, syscall.Signal) error { return errNotUnix }

func processAttributes() *syscall.SysProcAttr { return nil }
