declare module 'kafkajs/src/network/requestQueue/index.js' {
  export interface RequestQueue {
    readonly pending: readonly unknown[];
    /** Epoch milliseconds. */
    readonly throttledUntil: number;
    scheduleCheckPendingRequests(): void;
  }
  const RequestQueue: { readonly prototype: RequestQueue };
  export default RequestQueue;
}
