// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
)

// nginxPath finds nginx also where only root has sbin in the path.
func nginxPath() (string, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nginx")
	}
	if err != nil {
		return "", &missing{PeerNginx, "nginx libnginx-mod-stream"}
	}
	return path, nil
}

// nginxProgram returns the path of nginx and the line that loads its stream module,
// which is empty when the module is built in.
func nginxProgram() (string, error) {
	path, err := nginxPath()
	if err != nil {
		return "", err
	}
	_, err = nginxModule(path)
	return path, err
}

// nginxModule returns the configuration line that loads the stream module.
func nginxModule(path string) (string, error) {
	built, err := exec.Command(path, "-V").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nginx -V: %w", err)
	}
	modules := ""
	for _, field := range strings.Fields(string(built)) {
		if field == "--with-stream" {
			return "", nil
		}
		if folder, ok := strings.CutPrefix(field, "--modules-path="); ok {
			modules = filepath.Join(folder, "ngx_stream_module.so")
		}
	}
	if _, err = os.Stat(modules); err != nil {
		return "", &missing{PeerNginx, "nginx libnginx-mod-stream"}
	}
	return "load_module " + modules + ";", nil
}

// nginxConfig is nginx at its best for this job: a large buffer for bulk (each
// direction of a connection has one), and a listening socket for each worker, so that
// connections spread over them.
func nginxConfig(s setting, module, address, account string) string {
	buffer, bind, ssl := "16k", "", ""
	if s.workload.Kind.bulk() {
		buffer = "128k"
	}
	if s.workload.Kind.tls() {
		bind = " ssl"
		ssl = "ssl_certificate " + s.cert.pem + ";\n        ssl_certificate_key " + s.cert.pem +
			";\n        ssl_protocols TLSv1.3;\n        ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;"
	}
	return fmt.Sprintf(strings.TrimLeft(`
%s
user %s;
daemon off;
pid %s/nginx.pid;
error_log stderr crit;
worker_processes %d;
events {
    worker_connections 19900;
    multi_accept on;
}
stream {
    server {
        listen %s%s reuseport backlog=4096;
        proxy_pass %s;
        proxy_connect_timeout 10s;
        proxy_timeout 1h;
        proxy_buffer_size %s;
        tcp_nodelay on;
        %s
    }
}
`, "\n"), module, account, s.folder, s.threads, address, bind, s.broker, buffer, ssl)
}

// nginx returns the command that runs nginx in the foreground.
func nginx(s setting, address string) (*exec.Cmd, error) {
	path, err := nginxPath()
	if err != nil {
		return nil, err
	}
	module, err := nginxModule(path)
	if err != nil {
		return nil, err
	}
	account, err := user.Current()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(s.folder, "nginx.conf")
	if err = os.WriteFile(config, []byte(nginxConfig(s, module, address, account.Username)), 0o600); err != nil {
		return nil, err
	}
	return exec.Command(path, "-e", "stderr", "-p", s.folder, "-c", config), nil
}
