// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tiergate/cmd/tiergate/certs"
	"tiergate/config"
)

// soon is how long before a certificate expires check begins to speak of it.
const soon = 30 * 24 * time.Hour

// expired are certificates that are outside their life.
func expired(lives []certs.Life, now time.Time) []string {
	var list []string
	for _, l := range lives {
		switch whose := certificate(l); {
		case now.After(l.NotAfter):
			list = append(list, fmt.Sprintf("%s has expired: it was valid until %s", whose, l.NotAfter.Format(time.RFC3339)))
		case now.Before(l.NotBefore):
			list = append(list, fmt.Sprintf("%s is not valid before %s", whose, l.NotBefore.Format(time.RFC3339)))
		}
	}
	return list
}

// expiring are certificates that soon will be.
func expiring(lives []certs.Life, now time.Time) []string {
	var list []string
	for _, l := range lives {
		if left := l.NotAfter.Sub(now); left > 0 && left < soon {
			list = append(list, fmt.Sprintf("%s expires in %s, at %s", certificate(l), count(int(left/(24*time.Hour)), "day"), l.NotAfter.Format(time.RFC3339)))
		}
	}
	return list
}

func certificate(l certs.Life) string {
	return fmt.Sprintf("%s: the certificate of %s (%s)", l.For, l.Key, l.Subject)
}

// misnamed are listeners whose certificate is not for the hosts that clients are told.
func misnamed(cfg *config.Config, tls *certs.Store) []string {
	var list []string
	for _, of := range cfg.All() {
		for _, l := range of.Listeners {
			shown := tls.Certificate(l.Name)
			if shown == nil {
				continue
			}
			for _, told := range toldHosts(l) {
				if err := shown.VerifyHostname(told.host); err != nil {
					list = append(list, fmt.Sprintf("listener %q: its certificate (%s) is not for %s %s: clients that check host names, "+
						"as they do by default, will refuse it", l.Name, shown.Subject, told.key, told.host))
				}
			}
		}
	}
	return list
}

// invalidNames are host names of listeners with TLS that Java clients refuse. Their
// HostnameChecker makes a javax.net.ssl.SNIHostName of the name, which takes letters, digits
// and hyphens only, and no dot at the end.
func invalidNames(cfg *config.Config) []string {
	var list []string
	for _, of := range cfg.All() {
		for _, l := range of.Listeners {
			if l.TLS == nil {
				continue
			}
			for _, told := range toldHosts(l) {
				if strings.Contains(told.host, "_") || strings.HasSuffix(told.host, ".") {
					list = append(list, fmt.Sprintf("listener %q: %s %s is invalid as the name of a TLS server, which has letters, digits, hyphens and "+
						"inner dots only: Java clients refuse it (Illegal given domain name)", l.Name, told.key, told.host))
				}
			}
		}
	}
	return list
}

// toldHost is a host that clients are told, and the key that has it.
type toldHost struct{ key, host string }

// toldHosts lists the hosts that clients of a listener are told, or connect to first by
// name; of names with a node id in them one.
func toldHosts(l config.Listener) []toldHost {
	switch l.Kind() {
	case config.KindRange:
		return []toldHost{{"advertised_host", string(l.AdvertisedHost)}}
	case config.KindAddresses:
		var hosts []toldHost
		for _, a := range l.NodeAddresses {
			if !slices.ContainsFunc(hosts, func(h toldHost) bool { return h.host == a.Advertised.Host }) {
				hosts = append(hosts, toldHost{fmt.Sprintf("node_addresses[%d]", a.NodeID), a.Advertised.Host})
			}
		}
		return hosts
	case config.KindSNI:
		return []toldHost{{"sni.bootstrap_host", string(l.SNI.BootstrapHost)}, {"sni.node_host, such as", l.SNI.NodeHost.Host(0)}}
	case config.KindDirect:
	}
	return nil
}
