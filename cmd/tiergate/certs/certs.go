// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package certs keeps the TLS configurations of a proxy current: it reads the files that
// the configuration names, again when they change and when it is told to, and goes on
// with what it has when the new ones cannot be used.
//
// Files are compared by what is in them, every few seconds. That needs no help of the
// file system, and sees a renamed file, a rewritten one, and a Kubernetes secret, where
// the folder behind a link is exchanged, alike.
package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tiergate/config"
)

// pollEvery is the time between two looks at the files. They hold a few KB.
const pollEvery = 5 * time.Second

// Store has the TLS configurations of one tiergate. Its methods are safe for concurrent
// use.
type Store struct {
	log       *slog.Logger
	now       func() time.Time
	listeners map[config.Name]*source
	upstream  map[config.Name]*source // by cluster
	// several: the clusters have names.
	several bool
	// all is every source in the order of the configuration.
	all     []*source
	metrics *metrics
	// mu is held while files are read again.
	mu sync.Mutex
}

// source is one tls block, and what was made of it last.
type source struct {
	// name is for people: `listener "clients"`, "upstream", `upstream of cluster "a"`.
	name string
	// labels are for the metrics.
	labels  []string
	files   []config.File
	load    func() (*material, error)
	current atomic.Pointer[material]

	// What follows is Store.mu's.

	// seen is what the files held when they were last looked at.
	seen [sha256.Size]byte
	// failed is why what they held could not be used; nil when it could.
	failed error
	warned bool
	// expired are the certificates that were warned of.
	expired map[string]bool
}

// material is a configuration with the lives of the certificates in it.
type material struct {
	config *tls.Config
	leaf   *x509.Certificate // nil: none is shown
	lives  []Life
}

// Life is how long the certificates of a file live.
type Life struct {
	// For is whose block names the file: `listener "clients"`, "upstream", or `upstream of
	// cluster "a"` where there are several.
	For string
	// Key is that of the configuration, such as cert_file.
	Key string
	// Subject of the certificate that decides: in a chain the first one to expire, among
	// authorities the last.
	Subject string
	// NotBefore and NotAfter bound its life.
	NotBefore, NotAfter time.Time
}

// New reads all files of a configuration. What is wrong with one is nearly always a
// fault of the configuration already.
func New(c *config.Config, log *slog.Logger, registerer prometheus.Registerer) (*Store, error) {
	return newStore(c, log, registerer, time.Now)
}

func newStore(c *config.Config, log *slog.Logger, registerer prometheus.Registerer, now func() time.Time) (*Store, error) {
	s := &Store{log: log, now: now, listeners: map[config.Name]*source{}, upstream: map[config.Name]*source{}, several: len(c.Clusters) > 0}
	for _, of := range c.All() {
		s.addCluster(of)
	}
	for _, src := range s.all {
		src.seen = fingerprint(src.files)
		m, err := src.load()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", src.name, err)
		}
		src.current.Store(m)
	}
	s.warnExpired()
	var err error
	s.metrics, err = newMetrics(s, registerer)
	return s, err
}

// addCluster adds the blocks of a cluster.
func (s *Store) addCluster(of config.NamedCluster) {
	if t := of.Upstream.TLS; t != nil {
		name := "upstream"
		if of.Name != "" {
			name = fmt.Sprintf("upstream of cluster %q", of.Name)
		}
		s.upstream[of.Name] = s.add(name, []string{"upstream", "", string(of.Name)}, []config.File{t.CAFile, t.CertFile, t.KeyFile},
			func() (*material, error) { return loadUpstream(name, t) })
	}
	for _, l := range of.Listeners {
		if t := l.TLS; t != nil {
			name := fmt.Sprintf("listener %q", l.Name)
			s.listeners[l.Name] = s.add(name, []string{"listener", string(l.Name), string(of.Name)}, []config.File{t.CertFile, t.KeyFile, t.ClientCAFile},
				func() (*material, error) { return loadListener(name, t) })
		}
	}
}

func (s *Store) add(name string, labels []string, files []config.File, load func() (*material, error)) *source {
	src := &source{name: name, labels: labels, load: load, expired: map[string]bool{}}
	for _, f := range files {
		if f != "" {
			src.files = append(src.files, f)
		}
	}
	s.all = append(s.all, src)
	return src
}

// Listener returns what gives the configuration for the next handshake with a client
// of a listener; nil when it speaks plaintext.
func (s *Store) Listener(name config.Name) func() *tls.Config {
	src, ok := s.listeners[name]
	if !ok {
		return nil
	}
	return func() *tls.Config { return src.current.Load().config }
}

// Broker returns what gives the configuration for the next handshake with a broker of a
// cluster that was dialed by the name serverName; nil when plaintext is spoken.
func (s *Store) Broker(cluster config.Name) func(serverName string) *tls.Config {
	src, ok := s.upstream[cluster]
	if !ok {
		return nil
	}
	return func(serverName string) *tls.Config {
		c := src.current.Load().config
		if c.ServerName == "" {
			c = c.Clone()
			c.ServerName = serverName
		}
		return c
	}
}

// Certificate returns what clients of a listener are shown; nil when it speaks
// plaintext.
func (s *Store) Certificate(name config.Name) *x509.Certificate {
	if src, ok := s.listeners[name]; ok {
		return src.current.Load().leaf
	}
	return nil
}

// Lives returns how long the certificates of all files live.
func (s *Store) Lives() []Life {
	var all []Life
	for _, src := range s.all {
		all = append(all, src.current.Load().lives...)
	}
	return all
}

// Watch takes changed files up until ctx ends.
func (s *Store) Watch(ctx context.Context) {
	if len(s.all) == 0 {
		return
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.poll()
		}
	}
}

// poll takes changed files up. A certificate and its key cannot be exchanged at one
// stroke, so what cannot be used is complained of only when it still stands there at
// the next look.
func (s *Store) poll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, src := range s.all {
		switch now := fingerprint(src.files); {
		case now != src.seen:
			src.seen, src.warned = now, false
			s.reload(src)
		case src.failed != nil && !src.warned:
			s.complain(src)
		}
	}
	s.warnExpired()
}

// Reload reads all files again, changed or not, and says of each block how that went.
func (s *Store) Reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		s.log.Info("no TLS files to read again; the configuration itself is read at the start only")
	}
	for _, src := range s.all {
		src.seen = fingerprint(src.files)
		if s.reload(src); src.failed != nil {
			s.complain(src)
		}
	}
	s.warnExpired()
}

// reload makes a new configuration, or keeps the old one.
func (s *Store) reload(src *source) {
	m, err := src.load()
	if src.failed = err; err != nil {
		return
	}
	src.current.Store(m)
	src.warned = false
	s.metrics.reloads.WithLabelValues(resultOK).Inc()
	attrs := []any{"for", src.name}
	for _, l := range m.lives {
		attrs = append(attrs, l.Key, l.Subject, l.Key+"_expires", l.NotAfter.Format(time.RFC3339))
	}
	s.log.Info("TLS files were read again; new connections use them", attrs...)
}

func (s *Store) complain(src *source) {
	src.warned = true
	s.metrics.reloads.WithLabelValues(resultFailed).Inc()
	s.log.Warn("TLS files have changed and cannot be used; what was read before stays in use", "for", src.name, "error", src.failed)
}

// warnExpired warns once of every certificate outside its life: clients and brokers
// decide what they make of it.
func (s *Store) warnExpired() {
	now := s.now()
	for _, src := range s.all {
		for _, l := range src.current.Load().lives {
			is, at := "has expired", l.NotAfter
			if now.Before(l.NotBefore) {
				is, at = "is not valid yet", l.NotBefore
			} else if !now.After(l.NotAfter) {
				continue
			}
			if key := l.Key + l.Subject + at.String(); !src.expired[key] {
				src.expired[key] = true
				s.log.Warn("a certificate "+is, "for", src.name, "file", l.Key, "certificate", l.Subject, "at", at.Format(time.RFC3339))
			}
		}
	}
}

// fingerprint is a digest of what files hold; that one cannot be read is part of it.
func fingerprint(files []config.File) [sha256.Size]byte {
	all := sha256.New()
	for _, f := range files {
		text, err := config.ReadFile(f)
		sum := sha256.Sum256(text)
		_, _ = fmt.Fprintf(all, "%x %v\n", sum, err)
	}
	return [sha256.Size]byte(all.Sum(nil))
}
