// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path/filepath"

	"tiergate/internal/strictyaml"
)

// security checks the blocks tls and sasl, with the files that they name: what could
// not work is known before the first client comes.
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

// resolve lets a relative name begin in the folder of the configuration, wherever the
// process was started.
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
		d.Fault(path+".cert_file", "is missing; wanted %s", wantCertFile)
	}
	if d.Missing(path + ".key_file") {
		d.Fault(path+".key_file", "is missing; wanted %s", wantKeyFile)
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
		d.Fault(path+".client_ca_file", "is of no use with client_auth: none; remove one of them")
	case t.ClientAuth != ClientAuthNone && !hasCAs:
		d.Fault(path+".client_auth", "%q needs client_ca_file, the authorities that clients' certificates are checked with", t.ClientAuth)
	}
}

func (d *decoder) upstreamTLS(path string, t *UpstreamTLS) {
	d.resolve(&t.CAFile)
	d.resolve(&t.CertFile)
	d.resolve(&t.KeyFile)
	d.authorities(path+".ca_file", t.CAFile)
	switch {
	case d.present(path+".cert_file") && d.Missing(path+".key_file"):
		d.Fault(path+".key_file", "is missing beside cert_file; wanted %s", wantKeyFile)
	case d.present(path+".key_file") && d.Missing(path+".cert_file"):
		d.Fault(path+".cert_file", "is missing beside key_file; wanted %s", wantCertFile)
	}
	d.keyPair(path, t.CertFile, t.KeyFile)
	if d.Given(path+".server_name") && isWildcard(string(t.ServerName)) {
		d.Fault(path+".server_name", "%q is a wildcard; wanted the name in the brokers' certificates", t.ServerName)
	}
	if t.InsecureSkipVerify {
		for _, key := range []string{".ca_file", ".server_name"} {
			if d.Given(path + key) {
				d.Fault(path+key, "is of no use with insecure_skip_verify: true, which takes every certificate; remove one of them")
			}
		}
	}
}

// keyPair reports what is wrong with a certificate or its key where that file is named.
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
		d.Fault(path+".mechanism", "is missing; wanted %s", s.Mechanism.wanted())
	}
	if d.Missing(path + ".username") {
		d.Fault(path+".username", "is missing; wanted %s", wantText)
	}
	file, env := path+".password_file", path+".password_env"
	at := env
	if d.Given(file) {
		at = file
	}
	switch {
	case d.present(file) && d.present(env):
		d.Fault(env, "stands beside password_file; wanted one of them")
	case !d.present(file) && !d.present(env):
		d.Fault(path, "has no password; wanted password_file, or password_env with the name of an environment variable")
	case d.Given(at):
		d.password(at, s)
	}
}

// password reports a password that cannot be read, at the key that names its place. Neither
// value is quoted: it may be the password itself.
func (d *decoder) password(at string, s *SASL) {
	_, err := s.Password()
	var fault *FileFault
	switch {
	case errors.As(err, &fault):
		d.Fault(at, "names a file that %s; wanted %s", fault.Problem, wantSecret)
	case err != nil:
		d.Fault(at, "%v; wanted %s", err, wantEnv)
	}
}
