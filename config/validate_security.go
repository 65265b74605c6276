// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"path/filepath"
)

// security checks the blocks tls and sasl, with the files that they name: what could
// not work is known before the first client comes.
func (d *decoder) security(c located) {
	if t := c.Upstream.TLS; t != nil {
		d.upstreamTLS(join(c.path, "upstream.tls"), t)
	}
	if s := c.Upstream.SASL; s != nil {
		d.sasl(join(c.path, "upstream.sasl"), s)
	}
	for i := range c.Listeners {
		if t := c.Listeners[i].TLS; t != nil {
			d.listenerTLS(fmt.Sprintf("%s[%d].tls", join(c.path, "listeners"), i), t)
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
	if d.missing(path + ".cert_file") {
		d.fault(path+".cert_file", "is missing; wanted %s", wantCertFile)
	}
	if d.missing(path + ".key_file") {
		d.fault(path+".key_file", "is missing; wanted %s", wantKeyFile)
	}
	d.keyPair(path, t.CertFile, t.KeyFile)
	d.authorities(path+".client_ca_file", t.ClientCAFile)
	if d.faulty[path+".client_auth"] || d.faulty[path+".client_ca_file"] {
		return
	}
	switch hasCAs := d.given(path + ".client_ca_file"); {
	case t.ClientAuth == "" && hasCAs:
		t.ClientAuth = ClientAuthRequire
	case t.ClientAuth == "":
		t.ClientAuth = ClientAuthNone
	case t.ClientAuth == ClientAuthNone && hasCAs:
		d.fault(path+".client_ca_file", "is of no use with client_auth: none; remove one of them")
	case t.ClientAuth != ClientAuthNone && !hasCAs:
		d.fault(path+".client_auth", "%q needs client_ca_file, the authorities that clients' certificates are checked with", t.ClientAuth)
	}
}

func (d *decoder) upstreamTLS(path string, t *UpstreamTLS) {
	d.resolve(&t.CAFile)
	d.resolve(&t.CertFile)
	d.resolve(&t.KeyFile)
	d.authorities(path+".ca_file", t.CAFile)
	switch {
	case d.present(path+".cert_file") && d.missing(path+".key_file"):
		d.fault(path+".key_file", "is missing beside cert_file; wanted %s", wantKeyFile)
	case d.present(path+".key_file") && d.missing(path+".cert_file"):
		d.fault(path+".cert_file", "is missing beside key_file; wanted %s", wantCertFile)
	}
	d.keyPair(path, t.CertFile, t.KeyFile)
	if d.given(path+".server_name") && isWildcard(string(t.ServerName)) {
		d.fault(path+".server_name", "%q is a wildcard; wanted the name in the brokers' certificates", t.ServerName)
	}
	if t.InsecureSkipVerify {
		for _, key := range []string{".ca_file", ".server_name"} {
			if d.given(path + key) {
				d.fault(path+key, "is of no use with insecure_skip_verify: true, which takes every certificate; remove one of them")
			}
		}
	}
}

// keyPair reports what is wrong with a certificate or its key where that file is named.
func (d *decoder) keyPair(path string, cert, key File) {
	if !d.given(path+".cert_file") || !d.given(path+".key_file") {
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
	d.fault(at, "%v", fault)
}

func (d *decoder) authorities(path string, file File) {
	if !d.given(path) {
		return
	}
	if _, _, err := ReadCAs(file); err != nil {
		d.fault(path, "%v", err)
	}
}

func (d *decoder) sasl(path string, s *SASL) {
	d.resolve(&s.PasswordFile)
	if d.missing(path + ".mechanism") {
		d.fault(path+".mechanism", "is missing; wanted %s", s.Mechanism.wanted())
	}
	if d.missing(path + ".username") {
		d.fault(path+".username", "is missing; wanted %s", wantText)
	}
	file, env := path+".password_file", path+".password_env"
	at := env
	if d.given(file) {
		at = file
	}
	switch {
	case d.present(file) && d.present(env):
		d.fault(env, "stands beside password_file; wanted one of them")
	case !d.present(file) && !d.present(env):
		d.fault(path, "has no password; wanted password_file, or password_env with the name of an environment variable")
	case d.given(at):
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
		d.fault(at, "names a file that %s; wanted %s", fault.Problem, wantSecret)
	case err != nil:
		d.fault(at, "%v; wanted %s", err, wantEnv)
	}
}
