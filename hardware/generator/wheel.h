/* SPDX-License-Identifier: MIT */
/*
 * Timers in a hierarchical wheel: arming, disarming and firing take constant time, for any number of timers.
 *
 * A tick is 16.4 us (2^14 ns). A timer never fires early, and at most one tick late if the wheel is advanced often
 * enough. Four levels of 256 slots reach 19 hours. A timer that is due after more than 19 hours is moved to another
 * slot in time, and also fires at its time.
 */
#ifndef SIPSCHED_WHEEL_H
#define SIPSCHED_WHEEL_H
#include <stdint.h>

#define WHEEL_TICK_BITS 14
#define WHEEL_SLOT_BITS 8
#define WHEEL_SLOTS     (1 << WHEEL_SLOT_BITS)
#define WHEEL_LEVELS    4
#define WHEEL_NEVER     UINT64_MAX

struct timer {
	struct timer *next;
	struct timer **link; /* points to the pointer to this timer; NULL if the timer is not armed */
	uint64_t expires_ns;
};

struct wheel {
	uint64_t tick; /* the next tick whose timers will fire */
	uint64_t armed;
	/*
	 * One bit per slot of level 0. A slot whose bit is 0 is empty. A slot whose bit is 1 may also be empty, because
	 * disarming a timer does not clear the bit.
	 */
	uint64_t maybe_used[WHEEL_SLOTS / 64];
	struct timer *slots[WHEEL_LEVELS][WHEEL_SLOTS];
};

typedef void wheel_callback(void *context, struct timer *timer, uint64_t now_ns);

void wheel_init(struct wheel *wheel, uint64_t now_ns);
void wheel_arm(struct wheel *wheel, struct timer *timer, uint64_t expires_ns);
void wheel_disarm(struct wheel *wheel, struct timer *timer);

/* Call `callback` for all timers that are due. The callback may arm, disarm and free any timer. */
void wheel_advance(struct wheel *wheel, uint64_t now_ns, wheel_callback *callback, void *context);

/* Return a time before which no timer is due, or WHEEL_NEVER if no timer is armed. */
uint64_t wheel_next_ns(const struct wheel *wheel);
#endif
