// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/pires/go-proxyproto"
	"golang.org/x/sys/unix"
)

// Sizes in a header of the PROXY protocol (HAProxy's proxy-protocol.txt, 2.1 and 2.2), in
// bytes.
const (
	maxHeaderV1   = 107 // the longest line, its CRLF included
	headerV2Fixed = 16  // signature, version and command, family, length
	maxAddressV2  = 216 // the longest addresses, of Unix sockets
	bytesOfHeader = headerV2Fixed + maxAddressV2
)

// readHeader reads the header of an arrival. It may come in pieces, and nothing behind it is
// read but what fits a line of version 1. Of a long header (its length has 16 bits) only the
// addresses are kept.
func (a *arrival) readHeader() error {
	b := make([]byte, 0, bytesOfHeader)
	var err error
	for len(b) < len(proxyproto.SIGV2) && (begins(proxyproto.SIGV1, b) || begins(proxyproto.SIGV2, b)) && err == nil {
		b, err = a.more(b, len(proxyproto.SIGV2))
	}
	switch {
	case err != nil && len(b) == 0 && left(err):
		return errSilent
	case err != nil:
	case bytes.HasPrefix(b, proxyproto.SIGV2):
		b, err = a.readV2(b)
	case bytes.HasPrefix(b, proxyproto.SIGV1):
		for len(b) < maxHeaderV1 && bytes.IndexByte(b, '\n') < 0 && err == nil {
			b, err = a.more(b, maxHeaderV1)
		}
	case a.endpoint.ProxyProtocol == ProxyProtocolOptional:
		a.prefix = b
		return nil
	}
	if err != nil {
		return fmt.Errorf("the header is incomplete: %w", err)
	}
	return a.parseHeader(b)
}

// begins reports whether b is the beginning of a signature, or begins with it.
func begins(signature, b []byte) bool {
	n := min(len(signature), len(b))
	return bytes.Equal(signature[:n], b[:n])
}

// readV2 reads the rest of a header of version 2 and returns it without its extensions
// (TLV), which nobody here needs.
func (a *arrival) readV2(b []byte) (_ []byte, err error) {
	for len(b) < headerV2Fixed && err == nil {
		b, err = a.more(b, headerV2Fixed)
	}
	if err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint16(b[headerV2Fixed-2:]))
	kept := min(length, addressLen(proxyproto.AddressFamilyAndProtocol(b[13])))
	for len(b) < headerV2Fixed+kept && err == nil {
		b, err = a.more(b, headerV2Fixed+kept)
	}
	var dropped [512]byte
	for length -= kept; length > 0 && err == nil; {
		var rest []byte
		rest, err = a.more(dropped[:0], min(length, len(dropped)))
		length -= len(rest)
	}
	binary.BigEndian.PutUint16(b[headerV2Fixed-2:], uint16(kept))
	if b[13] == byte(proxyproto.UNSPEC) && b[12] == byte(proxyproto.PROXY) {
		// The receiver "must ignore any address information" of AF_UNSPEC, and may use the
		// connection's own: the same as LOCAL, which is all that the library accepts.
		b[12] = byte(proxyproto.LOCAL)
	}
	return b, err
}

// addressLen is how long the addresses of a family are.
func addressLen(family proxyproto.AddressFamilyAndProtocol) int {
	switch {
	case family.IsIPv4():
		return 12
	case family.IsIPv6():
		return 36
	case family.IsUnix():
		return maxAddressV2
	}
	return 0
}

// more reads once, until b has upTo bytes at most, for which it has room.
func (a *arrival) more(b []byte, upTo int) ([]byte, error) {
	n, err := a.read(b[len(b):upTo])
	if n > 0 {
		return b[:len(b)+n], nil
	}
	return b, err
}

// parseHeader takes what a header says, and keeps what came behind it.
func (a *arrival) parseHeader(b []byte) error {
	all := bytes.NewReader(b)
	r := bufio.NewReaderSize(all, bytesOfHeader)
	header, err := proxyproto.Read(r)
	if err != nil {
		return err
	}
	if source, dest, ok := header.TCPAddrs(); ok && !header.Command.IsLocal() {
		a.peer, a.local = source, dest
		a.endpoint.server.pending.identify(a)
	}
	a.prefix, err = io.ReadAll(r)
	return err
}

// sendHeader tells the broker who the client is.
func sendHeader(ctx context.Context, c net.Conn, version SendProxy, peer, local net.Addr) error {
	deadline, _ := ctx.Deadline()
	if err := c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if _, err := proxyproto.HeaderProxyFromAddrs(byte(version), peer, local).WriteTo(c); err != nil {
		return err
	}
	return c.SetWriteDeadline(time.Time{})
}

// left reports whether a read failed because the peer closed or reset the connection.
func left(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)
}
