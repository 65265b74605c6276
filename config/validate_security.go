// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path/filepath"

	"tiergate/internal/strictyaml"
)

// security checks the blocks tls and sasl, and the files that they name, so that an error is
// found before the first client connects.
func (d *decoder) security(c located) {
	if t := c.Upstream.TLS; t != nil {
		d.upstreamTLS(strictyaml.Join(c.path, "upstream.tls"), t)
	}
	if s := c.Upstream.SASL; s != nil {
		d.sasl(strictyaml.Join(c.path, "upstream.sasl"), s)
	}
	for i := range c.Listeners {
		if t := c.Listeners[i].TLS; t != nil {
			d.listenerTLS(fmt.Sprintf("%s[%d].tls", strictyaml.Join(c.path, "listeners"), i), t)
		}
	}
}

// resolve makes a relative file name relative to the folder of the configuration instead of
// the working directory.
func (d *decoder) resolve(f *File) {
	if *f != "" && !filepath.IsAbs(string(*f)) {
		*f = File(filepath.Join(d.folder, string(*f)))
	}
}

func (d *decoder) listenerTLS(path string, t *ListenerTLS) {
	d.resolve(&t.CertFile)
	d.resolve(&t.KeyFile)
	d.resolve(&t.ClientCAFile)
	if d.Missing(path + ".cert_file") {
		d.Fault(path+".cert_file", "missing: want %s", wantCertFile)
	}
	if d.Missing(path + ".key_file") {
		d.Fault(path+".key_file", "missing: want %s", wantKeyFile)
	}
	d.keyPair(path, t.CertFile, t.KeyFile)
	d.authorities(path+".client_ca_file", t.ClientCAFile)
	if d.Faulty[path+".client_auth"] || d.Faulty[path+".client_ca_file"] {
		return
	}
	switch hasCAs := d.Given(path + ".client_ca_file"); {
	case t.ClientAuth == "" && hasCAs:
		t.ClientAuth = ClientAuthRequire
	case t.ClientAuth == "":
		t.ClientAuth = ClientAuthNone
	case t.ClientAuth == ClientAuthNone && hasCAs:
		d.Fault(path+".client_ca_file", "has no effect with client_auth none: remove one of them")
	case t.ClientAuth != ClientAuthNone && !hasCAs:
		d.Fault(path+".client_auth", "missing client_ca_file: %q needs the authorities that issue client certificates", t.ClientAuth)
	}
}

func (d *decoder) upstreamTLS(path string, t *UpstreamTLS) {
	d.resolve(&t.CAFile)
	d.resolve(&t.CertFile)
	d.resolve(&t.KeyFile)
	d.authorities(path+".ca_file", t.CAFile)
	switch {
	case d.present(path+".cert_file") && d.Missing(path+".key_file"):
		d.Fault(path+".key_file", "missing next to cert_file: want %s", wantKeyFile)
	case d.present(path+".key_file") && d.Missing(path+".cert_file"):
		d.Fault(path+".cert_file", "missing next to key_file: want %s", wantCertFile)
	}
	d.keyPair(path, t.CertFile, t.KeyFile)
	if d.Given(path+".server_name") && isWildcard(string(t.ServerName)) {
		d.Fault(path+".server_name", "invalid host %q: want the name in the certificates of the brokers", t.ServerName)
	}
	if t.InsecureSkipVerify {
		for _, key := range []string{".ca_file", ".server_name"} {
			if d.Given(path + key) {
				d.Fault(path+key, "has no effect with insecure_skip_verify, which accepts every certificate: remove one of them")
			}
		}
	}
}

// keyPair reports an invalid certificate or key at the path that names the file.
func (d *decoder) keyPair(path string, cert, key File) {
	if !d.Given(path+".cert_file") || !d.Given(path+".key_file") {
		return
	}
	_, err := ReadKeyPair(cert, key)
	var fault *FileFault
	if !errors.As(err, &fault) {
		return
	}
	at := path + ".cert_file"
	if fault.File == key && cert != key {
		at = path + ".key_file"
	}
	d.Fault(at, "%v", fault)
}

func (d *decoder) authorities(path string, file File) {
	if !d.Given(path) {
		return
	}
	if _, _, err := ReadCAs(file); err != nil {
		d.Fault(path, "%v", err)
	}
}

func (d *decoder) sasl(path string, s *SASL) {
	d.resolve(&s.PasswordFile)
	if d.Missing(path + ".mechanism") {
		d.Fault(path+".mechanism", "missing: want %s", s.Mechanism.wanted())
	}
	if d.Missing(path + ".username") {
		d.Fault(path+".username", "missing: want %s", wantText)
	}
	file, env := path+".password_file", path+".password_env"
	at := env
	if d.Given(file) {
		at = file
	}
	switch {
	case d.present(file) && d.present(env):
		d.Fault(env, "conflicts with password_file: remove one of them")
	case !d.present(file) && !d.present(env):
		d.Fault(path, "missing password: want password_file, or password_env with the name of an environment variable")
	case d.Given(at):
		d.password(at, s)
	}
}

// password reports a password that cannot be read, at its key. The value is not quoted, since
// it can be the password itself.
func (d *decoder) password(at string, s *SASL) {
	_, err := s.Password()
	var fault *FileFault
	switch {
	case errors.As(err, &fault):
		d.Fault(at, "the file %s: want %s", fault.Problem, wantSecret)
	case err != nil:
		d.Fault(at, "%v: want %s", err, wantEnv)
	}
}
