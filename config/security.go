// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// ListenerTLS is the TLS configuration for the clients of a listener.
type ListenerTLS struct {
	// CertFile contains the certificate, followed by its intermediates, and KeyFile its
	// private key; both PEM.
	CertFile File `yaml:"cert_file"`
	KeyFile  File `yaml:"key_file"`
	// ClientCAFile contains the authorities of client certificates, PEM.
	ClientCAFile File `yaml:"client_ca_file"`
	// ClientAuth says whether clients need a certificate. Parse fills in the default, which
	// depends on ClientCAFile.
	ClientAuth ClientAuth `yaml:"client_auth"`
	// MinVersion is the oldest accepted version.
	MinVersion TLSVersion `yaml:"min_version"`
}

func (t *ListenerTLS) setDefaults() { t.MinVersion = TLSVersion12 }

// UpstreamTLS is the TLS configuration for connections to brokers.
type UpstreamTLS struct {
	// CAFile contains the authorities of broker certificates, PEM; empty: the system's.
	CAFile File `yaml:"ca_file"`
	// CertFile and KeyFile are the client certificate and its key; empty: none.
	CertFile File `yaml:"cert_file"`
	KeyFile  File `yaml:"key_file"`
	// ServerName is the name that every broker's certificate must have; empty: the host
	// that was dialed.
	ServerName Host `yaml:"server_name"`
	// InsecureSkipVerify accepts every certificate.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
	// MinVersion is the oldest accepted version.
	MinVersion TLSVersion `yaml:"min_version"`
}

func (t *UpstreamTLS) setDefaults() { t.MinVersion = TLSVersion12 }

// SASL is how the service client authenticates.
type SASL struct {
	Mechanism SASLMechanism `yaml:"mechanism"`
	Username  Text          `yaml:"username"`
	// PasswordFile or PasswordEnv, an environment variable, contains the password. One of
	// them is set.
	PasswordFile File    `yaml:"password_file"`
	PasswordEnv  EnvName `yaml:"password_env"`
}

// Password reads the password at each call, so that a changed one is used from the next
// authentication on. It removes one line end at the end. Its errors do not quote
// PasswordEnv, which can be the password itself by mistake. Safe for any goroutine.
func (s *SASL) Password() (string, error) {
	if s.PasswordEnv != "" {
		password, ok := os.LookupEnv(string(s.PasswordEnv))
		switch {
		case !ok:
			return "", errors.New("the environment variable that password_env names is not set")
		case password == "":
			return "", errors.New("the environment variable that password_env names is empty")
		}
		return password, nil
	}
	text, err := ReadFile(s.PasswordFile)
	if err != nil {
		return "", err
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(text) == 0 {
		return "", &FileFault{s.PasswordFile, "is empty"}
	}
	return string(text), nil
}

// File is the name of a file. Parse resolves a relative one from the folder of the
// configuration.
type File string

func (*File) kind() string { return "file name" }

func (*File) wanted() string { return wantFile }

func (f *File) parse(text string) error {
	if strings.ContainsAny(text, "\n\r") || strings.Contains(text, "-----BEGIN") {
		return unquotable("found the content of a file; want " + wantFile)
	}
	if text == "" || strings.ContainsRune(text, 0) {
		return fmt.Errorf("want %s", wantFile)
	}
	*f = File(text)
	return nil
}

// Text is any text that is not empty.
type Text string

func (*Text) kind() string { return "text" }

func (*Text) wanted() string { return wantText }

func (t *Text) parse(text string) error {
	if text == "" {
		return fmt.Errorf("want %s", wantText)
	}
	*t = Text(text)
	return nil
}

// EnvName is the name of an environment variable.
type EnvName string

func (*EnvName) kind() string { return "environment variable name" }

func (*EnvName) wanted() string { return wantEnv }

// envName is the form that systemd and Kubernetes accept.
var envName = regexp.MustCompile(`^[A-Za-z_.-][A-Za-z0-9_.-]*$`)

func (n *EnvName) parse(text string) error {
	if !envName.MatchString(text) {
		return fmt.Errorf("want %s", wantEnv)
	}
	*n = EnvName(text)
	return nil
}

// ClientAuth says whether clients of a listener need a certificate.
type ClientAuth string

const (
	// ClientAuthNone requests no certificate.
	ClientAuthNone ClientAuth = "none"
	// ClientAuthRequest requests one. A client can have none, but not an invalid one.
	ClientAuthRequest ClientAuth = "request"
	// ClientAuthRequire rejects clients without one.
	ClientAuthRequire ClientAuth = "require"
)

func (*ClientAuth) kind() string { return "value" }

func (*ClientAuth) wanted() string { return "none, request or require" }

func (a *ClientAuth) parse(text string) error {
	return parseOneOf(a, text, ClientAuthNone, ClientAuthRequest, ClientAuthRequire)
}

// TLSVersion is a version of TLS.
type TLSVersion string

// The supported versions. Those before 1.2 are deprecated (RFC 8996).
const (
	TLSVersion12 TLSVersion = "1.2"
	TLSVersion13 TLSVersion = "1.3"
)

func (*TLSVersion) kind() string { return "value" }

func (*TLSVersion) wanted() string { return `"1.2" or "1.3"` }

func (v *TLSVersion) parse(text string) error {
	return parseOneOf(v, text, TLSVersion12, TLSVersion13)
}

// SASLMechanism is a SASL mechanism of the service client.
type SASLMechanism string

// The mechanisms that need a name and a password only.
const (
	SASLPlain       SASLMechanism = "PLAIN"
	SASLScramSHA256 SASLMechanism = "SCRAM-SHA-256"
	SASLScramSHA512 SASLMechanism = "SCRAM-SHA-512"
)

func (*SASLMechanism) kind() string { return "value" }

func (*SASLMechanism) wanted() string { return "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512" }

func (m *SASLMechanism) parse(text string) error {
	return parseOneOf(m, text, SASLPlain, SASLScramSHA256, SASLScramSHA512)
}

// ProxyProtocol says whether clients' connections begin with a PROXY protocol header.
type ProxyProtocol string

const (
	// ProxyProtocolOff parses no header.
	ProxyProtocolOff ProxyProtocol = "off"
	// ProxyProtocolOptional parses a header if there is one.
	ProxyProtocolOptional ProxyProtocol = "optional"
	// ProxyProtocolRequired rejects connections without one.
	ProxyProtocolRequired ProxyProtocol = "required"
)

func (*ProxyProtocol) kind() string { return "value" }

func (*ProxyProtocol) wanted() string { return "off, optional or required" }

func (p *ProxyProtocol) parse(text string) error {
	return parseOneOf(p, text, ProxyProtocolOff, ProxyProtocolOptional, ProxyProtocolRequired)
}

// SendProxyProtocol is the version of a PROXY protocol header.
type SendProxyProtocol string

const (
	// SendProxyProtocolOff sends none.
	SendProxyProtocolOff SendProxyProtocol = "off"
	// SendProxyProtocolV1 sends the readable form.
	SendProxyProtocolV1 SendProxyProtocol = "v1"
	// SendProxyProtocolV2 sends the binary form.
	SendProxyProtocolV2 SendProxyProtocol = "v2"
)

func (*SendProxyProtocol) kind() string { return "value" }

func (*SendProxyProtocol) wanted() string { return "off, v1 or v2" }

func (p *SendProxyProtocol) parse(text string) error {
	return parseOneOf(p, text, SendProxyProtocolOff, SendProxyProtocolV1, SendProxyProtocolV2)
}
