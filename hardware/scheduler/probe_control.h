/* SPDX-License-Identifier: MIT */
/*
 * Functions that use the probe's control socket (sipprobe --control). A client sends a line `on` or `off`, and the probe
 * answers with one line.
 *
 * The answer takes milliseconds. probe_send() does not wait for the answer, so that the caller can make all other settings
 * before probe_wait().
 */
#ifndef SIPSCHED_PROBE_CONTROL_H
#define SIPSCHED_PROBE_CONTROL_H
#include <stdbool.h>

#define PROBE_ANSWER_MAX 128

/* Return a socket that is connected to the probe, or -errno on failure. */
int probe_connect(const char *path);
/* Send the command `on` or `off` without waiting for the answer. Return 0 on success, or an errno value. */
int probe_send(int probe, bool on);
/* Wait for the probe's answer to the last command, and store it in `answer`. Return 0 on success, or an errno value. */
int probe_wait(int probe, char answer[PROBE_ANSWER_MAX]);
#endif
