import { createTheme, type CSSVariablesResolver } from '@mantine/core';

export const theme = createTheme({
  primaryColor: 'blue',
  // Shades on which white text has 4.5:1 or more.
  primaryShade: { light: 9, dark: 8 },
  cursorType: 'pointer',
  respectReducedMotion: true,
  headings: { sizes: { h1: { fontSize: '1.5rem' }, h2: { fontSize: '1.2rem' }, h3: { fontSize: '1rem' } } },
});

/** Mantine's own shades for quiet text, hints and errors are below 4.5:1. */
export const readable: CSSVariablesResolver = () => ({
  variables: {},
  light: { '--mantine-color-dimmed': '#495057', '--mantine-color-placeholder': '#5c636a', '--mantine-color-error': '#a31515', '--mantine-color-anchor': '#0a4f96' },
  dark: { '--mantine-color-dimmed': '#c1c5ca', '--mantine-color-placeholder': '#a3a8ae', '--mantine-color-error': '#ffaeae', '--mantine-color-anchor': '#9dcbff' },
});
