// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "arguments.h"

bool parse_whole(const char *text, long long least, long long most, long long *value)
{
	char *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	return !errno && end != text && !*end && *value >= least && *value <= most;
}

static bool parse_cpu(const char **text, unsigned long *cpu)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	*cpu = strtoul(*text, &end, 10);
	*text = end;
	return true;
}

bool parse_cpu_range(const char **text, unsigned long most, unsigned long *first, unsigned long *last)
{
	if (!parse_cpu(text, first))
		return false;
	*last = *first;
	if (**text == '-') {
		++*text;
		if (!parse_cpu(text, last))
			return false;
	}
	if (*first > *last || *last >= most || (**text && **text != ','))
		return false;
	if (**text == ',')
		++*text;
	return true;
}

bool parse_address(const char *text, struct sockaddr_in *address)
{
	const char *colon = strchr(text, ':');
	char host[INET_ADDRSTRLEN] = "";
	long long port;

	if (!colon || (size_t)(colon - text) >= sizeof(host) || !parse_whole(colon + 1, 1, 65535, &port))
		return false;
	memcpy(host, text, (size_t)(colon - text));
	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	return inet_pton(AF_INET, host, &address->sin_addr) == 1;
}
