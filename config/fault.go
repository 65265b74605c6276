// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import "tiergate/internal/strictyaml"

// Fault is one error in a configuration file.
type Fault = strictyaml.Fault

// Error is every fault of one file, sorted by position; at least one.
type Error = strictyaml.Error
