// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// haproxyConfig is HAProxy at its best for each kind of workload, found by trying: splice
// in both directions more than halves the CPU time of bulk and is worse than none, also
// as splice-auto, for small frames. Pipes of 512 KiB are what tiergate has too.
func haproxyConfig(s setting, address string) string {
	splice, bufsize, bind := "", 16<<10, ""
	switch s.workload.Kind {
	case KindBulk, KindStalled:
		splice = "option splice-request\n    option splice-response"
	case KindTLSBulk:
		bufsize = 64 << 10
	case KindPing, KindTLSPing, KindIdle:
	}
	if s.workload.Kind.tls() {
		bind = " ssl crt " + s.cert.pem + " ssl-min-ver TLSv1.3 ciphersuites TLS_AES_128_GCM_SHA256"
	}
	return fmt.Sprintf(strings.TrimLeft(`
global
    nbthread %d
    maxconn 9200
    maxpipes 600
    tune.pipesize 524288
    tune.bufsize %d
    no log
defaults
    mode tcp
    backlog 4096
    maxconn 9200
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    %s
frontend clients
    bind %s%s
    default_backend brokers
backend brokers
    server broker %s
`, "\n"), s.threads, bufsize, splice, address, bind, s.broker)
}

// haproxy returns the command that runs HAProxy in the foreground.
func haproxy(s setting, address string) (*exec.Cmd, error) {
	path := filepath.Join(s.folder, "haproxy.cfg")
	if err := os.WriteFile(path, []byte(haproxyConfig(s, address)), 0o600); err != nil {
		return nil, err
	}
	return exec.Command("haproxy", "-db", "-q", "-f", path), nil
}
