import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

export default defineConfig({
  root: import.meta.dirname,
  plugins: [react()],
  // Nothing inline: the gateway's Content-Security-Policy lets nothing run that is not a file of its own.
  build: { outDir: 'dist', emptyOutDir: true, assetsInlineLimit: 0, cssTarget: ['chrome123', 'firefox120', 'safari17.5'], modulePreload: { polyfill: false }, chunkSizeWarningLimit: 1500 },
  server: { proxy: { '/v1': process.env.HOLDFAST ?? 'http://127.0.0.1:18080' } },
});
