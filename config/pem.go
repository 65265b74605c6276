// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// FileFault is an error in a file that the configuration names.
type FileFault struct {
	File File
	// Problem follows the name: "cannot be read: ...".
	Problem string
}

// Error is the name and the problem.
func (e *FileFault) Error() string { return fmt.Sprintf("%q %s", e.File, e.Problem) }

// maxFileBytes bounds a file of certificates: the system's own bundles have 250 KB.
const maxFileBytes = 16 << 20

// ReadFile reads a file that the configuration names. It removes a byte order mark. The error
// is a *FileFault. Anything but a regular file is rejected: opening or reading a FIFO would
// wait for its writer. Safe for any goroutine.
func ReadFile(name File) ([]byte, error) {
	text, err := readRegular(string(name))
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err // the name is there already
		}
		return nil, &FileFault{name, "cannot be read: " + err.Error()}
	}
	if len(text) > maxFileBytes {
		return nil, &FileFault{name, "is larger than 16 MiB"}
	}
	return bytes.TrimPrefix(text, utf8BOM), nil
}

func readRegular(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for the writer of a FIFO
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	switch stat, err := f.Stat(); {
	case err != nil:
		return nil, err
	case stat.IsDir():
		return nil, errors.New("is a directory")
	case !stat.Mode().IsRegular():
		return nil, errors.New("is a pipe, a socket or a device; want a regular file")
	}
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// ReadKeyPair reads a certificate, with its intermediates, and its key. The errors are
// *FileFault. Safe for any goroutine.
func ReadKeyPair(certFile, keyFile File) (tls.Certificate, error) {
	certs, err := ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	if _, err := certificates(certFile, certs); err != nil {
		return tls.Certificate{}, err
	}
	key, err := ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	if problem := keyProblem(key); problem != "" {
		return tls.Certificate{}, &FileFault{keyFile, problem}
	}
	pair, err := tls.X509KeyPair(certs, key)
	switch {
	case err == nil:
		return pair, nil
	case strings.Contains(err.Error(), "does not match"):
		return tls.Certificate{}, &FileFault{keyFile, fmt.Sprintf("is not the key of the certificate in %q; want the matching key", certFile)}
	default:
		return tls.Certificate{}, &FileFault{keyFile, "contains an invalid key: " + strings.TrimPrefix(err.Error(), "tls: ")}
	}
}

// keyProblem returns why a file cannot be a key, or "".
func keyProblem(text []byte) string {
	var kinds []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return "contains a key with a passphrase; want one without (openssl pkey -in OLD -out NEW)"
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return ""
		}
		kinds = append(kinds, block.Type)
	}
	if len(kinds) == 0 {
		return "is not a PEM file; want one that begins with -----BEGIN PRIVATE KEY-----"
	}
	return fmt.Sprintf("contains only %s; want a PRIVATE KEY block", strings.Join(kinds, ", "))
}

// ReadCAs reads the certificates of authorities. The errors are *FileFault. Safe for any
// goroutine.
func ReadCAs(file File) (*x509.CertPool, []*x509.Certificate, error) {
	text, err := ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	list, err := certificates(file, text)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool, list, nil
}

// certificates returns the certificates of a PEM file, at least one.
func certificates(file File, text []byte) ([]*x509.Certificate, error) {
	var list []*x509.Certificate
	var kinds []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			kinds = append(kinds, block.Type)
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, &FileFault{file, fmt.Sprintf("contains an invalid certificate, number %d: %s",
				len(list)+1, strings.TrimPrefix(err.Error(), "x509: "))}
		}
		list = append(list, c)
	}
	switch {
	case len(list) > 0:
		return list, nil
	case len(kinds) > 0:
		return nil, &FileFault{file, fmt.Sprintf("contains only %s; want a CERTIFICATE block", strings.Join(kinds, ", "))}
	case bytes.HasPrefix(text, []byte{0x30}):
		return nil, &FileFault{file, "is a binary file (DER or PKCS #12); want PEM, which begins with -----BEGIN CERTIFICATE-----"}
	default:
		return nil, &FileFault{file, "is not a PEM file; want one that begins with -----BEGIN CERTIFICATE-----"}
	}
}
