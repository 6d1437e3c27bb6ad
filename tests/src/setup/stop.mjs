export default async function stop() {
  await globalThis.holdfastTestServers?.stop();
}
