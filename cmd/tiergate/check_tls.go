// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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

// misnamed are listeners whose certificate is not for the host that clients are told.
func misnamed(cfg *config.Config, tls *certs.Store) []string {
	var list []string
	for _, l := range cfg.Listeners {
		shown := tls.Certificate(l.Name)
		if shown == nil || l.IsDirect() {
			continue
		}
		if err := shown.VerifyHostname(string(l.AdvertisedHost)); err != nil {
			list = append(list, fmt.Sprintf("listener %q: its certificate (%s) is not for advertised_host %s: clients that check host names, "+
				"as they do by default, will refuse it", l.Name, shown.Subject, l.AdvertisedHost))
		}
	}
	return list
}
