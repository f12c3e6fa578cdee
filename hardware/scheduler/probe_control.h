/* SPDX-License-Identifier: MIT */
/*
 * The probe's control socket (sipprobe --control). A client sends a line `on` or `off`, and the probe answers with one
 * line.
 *
 * probe_send() does not wait for the answer, which takes milliseconds. Meanwhile, the caller makes all other settings.
 */
#ifndef SIPSCHED_PROBE_CONTROL_H
#define SIPSCHED_PROBE_CONTROL_H
#include <stdbool.h>

#define PROBE_ANSWER_MAX 128

/* Return a connected socket, or -errno on failure. */
int probe_connect(const char *path);
/* Both functions return 0 on success, or an errno value. */
int probe_send(int probe, bool on);
int probe_wait(int probe, char answer[PROBE_ANSWER_MAX]);
#endif
