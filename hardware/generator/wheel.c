// SPDX-License-Identifier: MIT
#include <string.h>
#include "wheel.h"

#define SLOT_MASK ((uint64_t)WHEEL_SLOTS - 1)
#define REACH     ((uint64_t)1 << (WHEEL_SLOT_BITS * WHEEL_LEVELS))

void wheel_init(struct wheel *wheel, uint64_t now_ns)
{
	memset(wheel, 0, sizeof(*wheel));
	wheel->tick = now_ns >> WHEEL_TICK_BITS;
}

static void insert(struct timer **slot, struct timer *timer)
{
	timer->next = *slot;
	if (timer->next)
		timer->next->link = &timer->next;
	timer->link = slot;
	*slot = timer;
}

static void cut(struct timer *timer)
{
	*timer->link = timer->next;
	if (timer->next)
		timer->next->link = timer->link;
	timer->link = NULL;
}

static void place(struct wheel *wheel, struct timer *timer)
{
	uint64_t tick = (timer->expires_ns >> WHEEL_TICK_BITS) + 1;
	uint64_t distance = tick > wheel->tick ? tick - wheel->tick : 0;
	unsigned level = 0, slot;

	if (distance >= REACH)
		distance = REACH - 1;
	tick = wheel->tick + distance;
	while (distance >> (WHEEL_SLOT_BITS * (level + 1)))
		level++;
	slot = (unsigned)((tick >> (WHEEL_SLOT_BITS * level)) & SLOT_MASK);
	insert(&wheel->slots[level][slot], timer);
	if (!level)
		wheel->maybe_used[slot / 64] |= 1ULL << slot % 64;
}

void wheel_arm(struct wheel *wheel, struct timer *timer, uint64_t expires_ns)
{
	wheel_disarm(wheel, timer);
	timer->expires_ns = expires_ns;
	place(wheel, timer);
	wheel->armed++;
}

void wheel_disarm(struct wheel *wheel, struct timer *timer)
{
	if (!timer->link)
		return;
	cut(timer);
	wheel->armed--;
}

/*
 * Move the timers of a slot to `list`. The first timer must then point to `list` instead of the slot, so that a
 * callback can disarm any timer of `list`.
 */
static void take_slot(struct timer **slot, struct timer **list)
{
	*list = *slot;
	*slot = NULL;
	if (*list)
		(*list)->link = list;
}

static void cascade(struct wheel *wheel)
{
	struct timer *list, *timer;

	for (unsigned level = 1; level < WHEEL_LEVELS; level++) {
		uint64_t index = (wheel->tick >> (WHEEL_SLOT_BITS * level)) & SLOT_MASK;

		take_slot(&wheel->slots[level][index], &list);
		while ((timer = list)) {
			cut(timer);
			place(wheel, timer);
		}
		if (index)
			return;
	}
}

/* Return the next tick at which a timer may be due, or at which timers may have to move to a lower level. */
static uint64_t next_tick(const struct wheel *wheel)
{
	uint64_t slot = wheel->tick & SLOT_MASK;

	/*
	 * a new round through level 0 begins now, so some timers may have to move from an upper level to a lower level
	 */
	if (!slot)
		return wheel->tick;
	for (uint64_t word = slot / 64; word < WHEEL_SLOTS / 64; word++) {
		uint64_t bits = wheel->maybe_used[word];

		if (word == slot / 64)
			bits &= ~0ULL << slot % 64;
		if (bits)
			return wheel->tick - slot + word * 64 + (uint64_t)__builtin_ctzll(bits);
	}
	return wheel->tick - slot + WHEEL_SLOTS;
}

void wheel_advance(struct wheel *wheel, uint64_t now_ns, wheel_callback *callback, void *context)
{
	uint64_t last = now_ns >> WHEEL_TICK_BITS, tick;
	struct timer *list, *timer;

	while (wheel->armed && (tick = next_tick(wheel)) <= last) {
		unsigned slot = (unsigned)(tick & SLOT_MASK);

		wheel->tick = tick;
		if (!slot)
			cascade(wheel);
		take_slot(&wheel->slots[0][slot], &list);
		wheel->maybe_used[slot / 64] &= ~(1ULL << slot % 64);
		wheel->tick++;
		while ((timer = list)) {
			cut(timer);
			wheel->armed--;
			callback(context, timer, now_ns);
		}
	}
	if (wheel->tick <= last)
		wheel->tick = last + 1;
}

uint64_t wheel_next_ns(const struct wheel *wheel)
{
	return wheel->armed ? next_tick(wheel) << WHEEL_TICK_BITS : WHEEL_NEVER;
}
