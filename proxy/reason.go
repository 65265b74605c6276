// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

// reason says why a session ended: the closed set of a metric's label.
type reason uint8

const (
	reasonClientClosed reason = iota
	reasonBrokerClosed
	reasonDrained
	reasonShutdown
	reasonLinger
	reasonIdle
	reasonDial
	reasonShortage
	reasonTLS
	reasonForeign
	reasonFrameTooLarge
	reasonHeldTooLarge
	reasonBufferFull
	reasonDisplaced
	reasonNoRequest
	reasonNoProgress
	reasonLookupTimeout
	reasonMalformed
	reasonOrder
	reasonUnrewritable
	reasonPanic
	reasonCount
)

// String returns the metric's label value.
func (r reason) String() string { return reasonTexts[r].label }

// sentence says the reason in plain words, for the log.
func (r reason) sentence() string { return reasonTexts[r].sentence }

// fault reports whether somebody should hear of it.
func (r reason) fault() bool { return r >= reasonDial }

// refusal reports whether the client is to try again, here or elsewhere: tiergate leaves
// it, through no fault of the client's or of what the broker said.
func (r reason) refusal() bool {
	switch r { //nolint:exhaustive // all others are no refusals
	case reasonDial, reasonShortage, reasonDrained, reasonShutdown, reasonBufferFull, reasonDisplaced, reasonNoRequest, reasonNoProgress, reasonLookupTimeout:
		return true
	default:
		return false
	}
}

var reasonTexts = [reasonCount]struct{ label, sentence string }{
	reasonClientClosed:  {"client_closed", "the client closed the connection"},
	reasonBrokerClosed:  {"broker_closed", "the broker closed the connection"},
	reasonDrained:       {"drained", "the proxy is shutting down and nothing was under way"},
	reasonShutdown:      {"shutdown", "the proxy shut down"},
	reasonLinger:        {"linger", "one side had closed and the other did not within linger_timeout"},
	reasonIdle:          {"idle", "nothing was sent for idle_timeout"},
	reasonDial:          {"dial_failed", "the broker cannot be reached"},
	reasonShortage:      {"local_shortage", "this machine has no file descriptor, local port or memory left for a connection to the broker"},
	reasonTLS:           {"tls_alert", "the other side ended TLS with an alert"},
	reasonForeign:       {"not_kafka", "the peer does not speak plaintext Kafka here"},
	reasonFrameTooLarge: {"frame_too_large", "a frame is larger than the limit"},
	reasonHeldTooLarge:  {"held_too_large", "a frame that must be changed is larger than max_held_bytes"},
	reasonBufferFull:    {"buffer_full", "max_buffered_bytes is reached"},
	reasonDisplaced:     {"displaced", "a client of another address needs its place"},
	reasonNoRequest:     {"no_request", "the client sent no request within first_request_timeout"},
	reasonNoProgress:    {"no_progress", "a peer stopped sending or reading for progress_timeout"},
	reasonLookupTimeout: {"lookup_timeout", "the broker did not respond to a lookup request within lookup_timeout"},
	reasonMalformed:     {"malformed", "a frame cannot be understood"},
	reasonOrder:         {"out_of_order", "the broker answered out of order"},
	reasonUnrewritable:  {"unrewritable", "the client asked for a version that was not offered to it, whose answer would carry the broker's own address"},
	reasonPanic:         {"panic", "a defect of the proxy; please report it"},
}
