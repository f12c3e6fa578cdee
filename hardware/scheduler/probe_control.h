/* SPDX-License-Identifier: MIT */
/*
 * The probe's control socket (sipprobe --control): a line `on` or `off`, answered by one when it is done.
 *
 * Sending does not wait for it: the probe takes milliseconds, and everything else is set meanwhile.
 */
#ifndef SIPSCHED_PROBE_CONTROL_H
#define SIPSCHED_PROBE_CONTROL_H
#include <stdbool.h>

#define PROBE_ANSWER_MAX 128

/* A socket, or -errno. */
int probe_connect(const char *path);
/* Both: 0, or an errno. */
int probe_send(int probe, bool on);
int probe_wait(int probe, char answer[PROBE_ANSWER_MAX]);
#endif
