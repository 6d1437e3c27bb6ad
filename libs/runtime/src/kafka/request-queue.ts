import RequestQueue, { type RequestQueue as Queue } from 'kafkajs/src/network/requestQueue/index.js';

const { prototype } = RequestQueue;
const schedule = prototype.scheduleCheckPendingRequests;

/**
 * kafkajs 2.2.4 looks for requests that wait to be sent a millisecond after each request, and a millisecond after each
 * look: some 850 times a second for each connection of an idle process. Here it looks only where one waits, or the broker
 * has throttled us.
 */
prototype.scheduleCheckPendingRequests = function (this: Queue) {
  if (this.pending.length > 0 || this.throttledUntil > Date.now()) schedule.call(this);
};
