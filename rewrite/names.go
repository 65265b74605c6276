// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package rewrite

import "github.com/twmb/franz-go/pkg/kmsg"

// KeyName returns Kafka's name of an API key, or "unknown": a closed set, fit for a
// metric label.
func KeyName(key int16) string {
	if name := kmsg.NameForKey(key); name != "Unknown" {
		return name
	}
	return "unknown"
}
