// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package fault

import "context"

// Restartable is a broker or a proxy. Stop and Start return when it is down and when it
// serves; each may be called again without effect.
type Restartable interface {
	Stop(ctx context.Context) error
	Start(ctx context.Context) error
}

// Killable is a Restartable that can be ended without a word, as kafka.Node can.
type Killable interface {
	Restartable
	Kill()
}

// restart is a fault that stops something.
type restart struct {
	kind Kind
	what string
	it   Restartable
}

// NewRestart returns a fault that stops it and starts it at the end: KindBrokerRestart or
// KindProxyRestart. what names it for the report, such as "broker 2".
func NewRestart(kind Kind, what string, it Restartable) Fault {
	return &restart{kind, what, it}
}

// NewKill is NewRestart with Kill for Stop, of KindBrokerKill or KindProxyRestart.
func NewKill(kind Kind, what string, it Killable) Fault {
	return &restart{kind, what, killed{it}}
}

// killed has Kill in the place of Stop.
type killed struct{ Killable }

func (k killed) Stop(context.Context) error {
	k.Kill()
	return nil
}

func (r *restart) Kind() Kind                      { return r.kind }
func (r *restart) Begin(ctx context.Context) error { return r.it.Stop(ctx) }
func (r *restart) End(ctx context.Context) error   { return r.it.Start(ctx) }

func (r *restart) String() string {
	if _, ok := r.it.(killed); ok {
		return r.what + " killed and started"
	}
	return r.what + " stopped and started"
}
