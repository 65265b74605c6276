// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Preloaded into a client, it writes down every name that the client resolves and every
// internet address that it connects to, whether that succeeds or not, into the file that
// TIERGATE_CONNECTS names: one line each, "resolve NAME" or "connect ADDRESS:PORT".
// librdkafka and Java's own networking both call the C library for either.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// One write with O_APPEND, so that lines of several threads stay whole.
static void note(const char *line) {
	int saved = errno;
	const char *path = getenv("TIERGATE_CONNECTS");
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		abort(); // a client that is not watched proves nothing
	close(fd);
	errno = saved;
}

int connect(int fd, const struct sockaddr *to, socklen_t len) {
	static int (*next)(int, const struct sockaddr *, socklen_t);
	char ip[INET6_ADDRSTRLEN] = "?", line[128];
	if (!next)
		next = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
	if (to && to->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)to;
		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
		snprintf(line, sizeof line, "connect %s:%d\n", ip, ntohs(in->sin_port));
		note(line);
	} else if (to && to->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)to;
		inet_ntop(AF_INET6, &in->sin6_addr, ip, sizeof ip);
		snprintf(line, sizeof line, "connect [%s]:%d\n", ip, ntohs(in->sin6_port));
		note(line);
	}
	return next(fd, to, len);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
	static int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	char line[512];
	if (!next)
		next = (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
	if (name) {
		snprintf(line, sizeof line, "resolve %.400s\n", name);
		note(line);
	}
	return next(name, service, hints, found);
}
